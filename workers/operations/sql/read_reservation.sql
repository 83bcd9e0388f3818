-- The reservation $1 with the status of its run.
select r.id, r.agent, r.channel, r.account, r.event_id, r.message_id, r.run_id, run.status as run_status,
       r.outcome, r.generation, lane.generation as lane_generation, r.created_at, r.expires_at
  from reservations r
  left join runs run on run.id = r.run_id
  left join lanes lane on lane.id = r.lane_id
 where r.id = $1
