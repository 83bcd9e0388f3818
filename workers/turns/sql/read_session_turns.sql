-- The turns of session $1 among the lanes $2 (bigint[], locked), with the state of their runs.
select t.lane_id, t.run_id, t.epoch, r.agent, r.status, r.crashes, r.attempts,
       r.finished_at is not null as finished
  from turns t join runs r on r.id = t.run_id
 where t.session_id = $1 and t.lane_id = any($2::bigint[])
 order by t.lane_id
