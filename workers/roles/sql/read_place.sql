-- Which database a connection leads to: when its server came up, and its own id there.
select pg_postmaster_start_time() as started_at, oid from pg_database where datname = current_database()
