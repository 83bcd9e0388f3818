-- First statement of the claim: holds the worker session $2, if it is alive, so that a takeover waits for this transaction,
-- and locks those of the lanes $1 (bigint[]) that nobody else holds at this moment.
with held as materialized (
    select id
      from worker_sessions
     where id = $2 and dead_at is null and ended_at is null
       for key share
)
select l.id
  from held
 cross join lanes l
 where l.id = any($1::bigint[])
 order by l.id
   for no key update of l skip locked
