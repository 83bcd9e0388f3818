-- Removes those of the lanes $1 (bigint[], locked) that have nothing open, with what still queues them.
with idle as (
    select lane_id
      from unnest($1::bigint[]) as locked (lane_id)
     where not exists (select from runs where runs.lane_id = locked.lane_id and runs.finished_at is null)
       and not exists (select from deliveries d where d.lane_id = locked.lane_id and d.finished_at is null)
       and not exists (select from turns where turns.lane_id = locked.lane_id)
),
unqueued as (delete from ready using idle where ready.lane_id = idle.lane_id)
delete from lanes using idle where lanes.id = idle.lane_id
