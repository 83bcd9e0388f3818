-- Lanes after $1 with an open head run that are neither owned by a live turn nor in the ready queue, read from the next $2 open
-- runs. Returns one row a lane with whether it is unqueued; the caller goes on from the last. Each lane's entries are looked up
-- by their keys (the limits keep the planner from reading whole tables instead).
select open_lanes.lane_id,
       queued.lane_id is null
       and (turn.lane_id is null or turn.session_id is null and owner.status is distinct from 'waiting') as unqueued
  from (select distinct lane_id
          from (select lane_id
                  from runs
                 where finished_at is null and lane_id > $1
                 order by lane_id, position
                 limit $2) open_runs) open_lanes
  left join lateral (select lane_id from ready where ready.lane_id = open_lanes.lane_id limit 1) queued on true
  left join lateral (select lane_id, session_id, run_id
                       from turns
                      where turns.lane_id = open_lanes.lane_id
                      limit 1) turn on true
  left join lateral (select status from runs where runs.id = turn.run_id limit 1) owner on true
 order by open_lanes.lane_id
