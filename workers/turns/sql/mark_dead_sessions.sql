-- Marks at most $2 sessions dead whose lease ran out by the database clock, but none in the first lease period ($1, interval)
-- after the server came up. Waits for nobody: a session held by a claim is found by the next sweep.
with lapsed as (
    select id
      from worker_sessions
     where ended_at is null and dead_at is null and lease_until < parley_now()
       and pg_postmaster_start_time() + $1::interval < parley_now()
     order by id
     limit $2
       for update skip locked
)
update worker_sessions s set dead_at = parley_now() from lapsed where s.id = lapsed.id
returning s.id, s.worker
