-- Whether a living worker can claim runs of agent $1; null where none says what it can.
select bool_or($1 = any(agents)) as known
  from worker_sessions
 where ended_at is null and dead_at is null and lease_until > parley_now() and agents <> '{}'
