-- Locks lanes $1 in id order.
select id
  from lanes
 where id = any($1::bigint[])
 order by id
   for no key update
