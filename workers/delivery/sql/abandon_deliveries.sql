-- Ends the pending deliveries of runs $1 with reason $2 and marks those under way or uncertain as cancelled.
-- Returns reply_key, lane_id and recalled of those that ended. Locks in id order.
with open as (
    select id
      from deliveries
     where run_id = any($1::uuid[]) and finished_at is null
     order by id
       for no key update
),
marked as (
    update deliveries d
       set state = case when d.state <> 'pending' then d.state
                        when d.uncertain_since is null then 'failed'
                        else 'unknown' end,
           reason = case when d.state = 'pending' then $2 else 'cancelled' end,
           finished_at = case when d.state = 'pending' then parley_now() end,
           due_at = parley_now()
      from open
     where d.id = open.id and d.finished_at is null
    returning d.reply_key, d.lane_id, d.recalled, d.finished_at
)
select reply_key, lane_id, recalled
  from marked
 where finished_at is not null
