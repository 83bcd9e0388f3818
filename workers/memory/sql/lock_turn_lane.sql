-- Locks the lane $1 if it is still in generation $2 and epoch $3 and owned by run $4: the fence of a note edit.
select id
  from lanes
 where id = $1
   and generation = $2
   and epoch = $3
   and owner_run = $4
   for no key update
