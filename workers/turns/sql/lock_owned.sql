-- First statement of every write of a turn: locks those of the lanes $1 (bigint[]) that are still owned by the runs $2
-- (uuid[]) under the epochs $3 (bigint[]), in id order. What it does not return is lost ownership.
select l.id, l.epoch
  from lanes l
  join unnest($1::bigint[], $2::uuid[], $3::bigint[]) as o (lane_id, run_id, epoch)
    on l.id = any($1::bigint[]) and l.id = o.lane_id and l.owner_run = o.run_id and l.epoch = o.epoch
 order by l.id
   for no key update of l
