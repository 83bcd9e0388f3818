-- First statement of every claim: holds session $1 against a takeover; no row where it was marked dead or ended.
select id
  from worker_sessions
 where id = $1 and dead_at is null and ended_at is null
   for key share
