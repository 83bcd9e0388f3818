-- Wakes the waiters of the hints $2 (names separated by commas) in every worker that listens on $1.
select pg_notify($1, $2)
