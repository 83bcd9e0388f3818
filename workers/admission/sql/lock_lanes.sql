-- Locks the lanes with keys $1 (bytea[]) in id order; everything that is compared or counted is read in later statements.
select id, key, generation
  from lanes
 where key = any($1::bytea[])
 order by id
   for no key update
