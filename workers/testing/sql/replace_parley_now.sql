-- The one clock that the engine's SQL reads, from the test clock instead of the server's.
create or replace function parley_now() returns timestamptz language sql stable parallel safe
as 'select coalesce(stands_at, now() + shift) from test_clock'
