-- Removes those of the conversations of lanes $1 (bigint[], locked) that are older than $2 (interval), deleted that long ago if
-- they were, and of which nothing is left: no item, note, receipt, open run or unsent reply. Returns their lanes.
-- One that was ever reset or deleted stays as a tombstone while a reservation from before that moment lives, which could
-- be healed into a lane made anew; where the moment is not known, it is taken to be now.
with empty as materialized (
    select c.lane_id, l.generation, c.deleted_at
      from conversations c join lanes l on l.id = c.lane_id
     where c.lane_id = any($1::bigint[]) and l.owner_run is null
       and greatest(c.created_at, c.deleted_at) < parley_now() - $2::interval
       and not exists (select from items i where i.lane_id = c.lane_id)
       and not exists (select from notes n where n.lane_id = c.lane_id)
       and not exists (select from note_operations o where o.lane_id = c.lane_id)
       and not exists (select from runs where runs.lane_id = c.lane_id and runs.finished_at is null)
       and not exists (select from deliveries d where d.lane_id = c.lane_id and d.finished_at is null)
),
buried as (
    update conversations c
       set deleted_at = parley_now()
      from empty
     where c.lane_id = empty.lane_id and empty.generation > 0 and empty.deleted_at is null
)
delete from conversations c
 using empty
 where c.lane_id = empty.lane_id
   and (empty.generation = 0
        or empty.deleted_at < coalesce((select created_at from reservations order by id limit 1), 'infinity'))
returning c.lane_id
