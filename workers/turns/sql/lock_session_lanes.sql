-- Locks the lanes of the turns that session $1 owns, in id order. What they hold is read by a later statement.
select l.id
  from lanes l
 where l.id in (select lane_id from turns where session_id = $1)
 order by l.id
   for no key update
