-- Ends the session $1 after a drain; what it still owns (nothing, normally) is released by the next sweep.
update worker_sessions set ended_at = parley_now() where id = $1 and ended_at is null
