-- The test clock's one row: how far it is ahead of the database's, and the instant at which it stands, if it does.
create table test_clock (
    shift     interval not null default '0',
    stands_at timestamptz
)
