-- Locks the lanes $1 (bigint[]) and those with keys $2 (bytea[]) in id order and waits for them: what a turn hands off may
-- be serialized in a lane that others lock too.
select id
  from lanes
 where id in (select unnest($1::bigint[]) union select l.id from lanes l where l.key = any($2::bytea[]))
 order by id
   for no key update
