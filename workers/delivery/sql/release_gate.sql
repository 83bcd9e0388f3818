-- Lanes $1 that waited for a reply to become final may be claimed at once: their ready entry comes forward to the
-- moment their head run is due (now, unless the run itself backs off). The caller holds the lanes.
with free as (
    select lane_id
      from unnest($1::bigint[]) as w (lane_id)
     where not exists (select
                         from deliveries d
                        where d.lane_id = w.lane_id and d.recalled and d.finished_at is null)
),
locked as (
    select lane_id
      from ready
     where lane_id in (select lane_id from free) and due_at > parley_now()
     order by lane_id
       for no key update
)
update ready r
   set due_at = least(r.due_at, greatest(parley_now(), head.due_at))
  from locked
 cross join lateral (select due_at
                       from runs
                      where runs.lane_id = locked.lane_id and runs.finished_at is null
                      order by position
                      limit 1) head
 where r.lane_id = locked.lane_id
