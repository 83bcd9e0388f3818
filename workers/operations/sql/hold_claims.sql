-- Lets the next run of lane $1 behind its active turn wait for $2 (interval) from now, unless it waits for most of that already.
-- The claim reads when a head is due under the lane's lock, so the hold counts whoever puts the lane into the ready queue.
-- It lapses by itself, and the active turn is not touched.
update runs
   set due_at = parley_now() + $2::interval
 where id = (
       select r.id
         from runs r
        where r.lane_id = $1 and r.finished_at is null
          and not exists (select from turns t where t.lane_id = r.lane_id and t.run_id = r.id)
        order by r.position
        limit 1
       )
   and due_at < parley_now() + $2::interval * 0.75
