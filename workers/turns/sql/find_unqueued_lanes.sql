-- Lanes after $1 with an open head run that are neither owned by a live turn nor in the ready queue, read from the next $2 open runs.
-- Returns one row a lane with whether it is unqueued; the last lane may be incomplete, so the caller goes on from it.
select open_runs.lane_id,
       bool_and(not exists (select from ready where ready.lane_id = open_runs.lane_id)
                and not exists (select from turns where turns.lane_id = open_runs.lane_id
                                   and (turns.session_id is not null
                                        or exists (select from runs where runs.id = turns.run_id
                                                      and runs.status = 'waiting')))) as unqueued
  from (select lane_id, position
          from runs
         where finished_at is null and lane_id > $1
         order by lane_id, position
         limit $2) open_runs
 group by open_runs.lane_id
 order by open_runs.lane_id
