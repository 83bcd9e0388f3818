-- Holds the worker session $1 until this transaction ends, if it is alive; a takeover waits for it. One row or none.
select id from worker_sessions where id = $1 and dead_at is null and ended_at is null for key share
