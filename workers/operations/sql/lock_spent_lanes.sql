-- Of the lanes $1 (bigint[]), whose runs up to the positions $2 (bigint[]) are gone, locks those that are no conversation, that
-- nobody owns or holds, and that had no later run.
select l.id
  from unnest($1::bigint[], $2::bigint[]) as spent (lane_id, position)
  join lanes l on l.id = spent.lane_id
 where l.kind <> 'conversation' and l.owner_run is null and l.next_position = spent.position + 1
 order by l.id
   for update of l skip locked
