-- What the server says of itself; its own clock, since it is the one that decides.
select current_setting('server_version') as version,
       current_setting('server_version_num')::integer as version_number,
       clock_timestamp() as clock,
       pg_is_in_recovery() as in_recovery,
       (select count(*) from pg_available_extensions where name = 'vector') > 0 as has_vector
