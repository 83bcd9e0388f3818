-- The clock starts with the database's own time.
insert into test_clock default values
