-- Locks, of the next $2 conversations after lane $1, those that are older than $3 (interval), that no run owns and that nobody
-- holds; returns lane and whether it is locked.
with next_ones as (
    select lane_id, greatest(created_at, deleted_at) < parley_now() - $3::interval as old
      from conversations
     where lane_id > $1
     order by lane_id
     limit $2
),
locked as (
    select id
      from lanes
     where id in (select lane_id from next_ones where old) and owner_run is null
     order by id
       for update skip locked
)
select next_ones.lane_id, locked.id is not null as locked
  from next_ones
  left join locked on locked.id = next_ones.lane_id
 order by next_ones.lane_id
