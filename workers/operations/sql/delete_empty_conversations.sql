-- Removes those of the conversations of lanes $1 (bigint[], locked) that are older than $2 (interval), deleted that long ago if
-- they were, and of which nothing is left: no item, note, receipt, open run or unsent reply. Returns their lanes.
delete from conversations c
 using lanes l
 where c.lane_id = any($1::bigint[]) and l.id = c.lane_id and l.owner_run is null
   and greatest(c.created_at, c.deleted_at) < parley_now() - $2::interval
   and not exists (select from items i where i.lane_id = c.lane_id)
   and not exists (select from notes n where n.lane_id = c.lane_id)
   and not exists (select from note_operations o where o.lane_id = c.lane_id)
   and not exists (select from runs where runs.lane_id = c.lane_id and runs.finished_at is null)
   and not exists (select from deliveries d where d.lane_id = c.lane_id and d.finished_at is null)
returning c.lane_id
