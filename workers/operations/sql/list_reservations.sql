-- The newest $3 reservations of agent $1 (null for any) with the status of their runs; only those without run and
-- outcome where $2.
select r.id, r.agent, r.channel, r.account, r.event_id, r.message_id, r.run_id, run.status as run_status,
       r.outcome, r.generation, lane.generation as lane_generation, r.created_at, r.expires_at
  from reservations r
  left join runs run on run.id = r.run_id
  left join lanes lane on lane.id = r.lane_id
 where ($1::text is null or r.agent = $1)
   and (not $2::boolean or (run.id is null and r.outcome is null))
 order by r.id desc
 limit $3
