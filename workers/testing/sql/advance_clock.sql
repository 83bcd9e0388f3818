-- Moves the clock ahead by $1 (interval), and with it the leases of every session that is alive and not in $2 (uuid[]):
-- a worker that lives does not lose its lease to a test.
with moved as (
    update test_clock set shift = shift + $1, stands_at = stands_at + $1
)
update worker_sessions
   set lease_until = lease_until + $1
 where ended_at is null and dead_at is null and id <> all ($2)
