-- Locks the lanes $1 (bigint[]) in id order and waits for whoever holds one. Everything else is read by later statements.
select id, generation, owner_run
  from lanes
 where id = any($1::bigint[])
 order by id
   for no key update
