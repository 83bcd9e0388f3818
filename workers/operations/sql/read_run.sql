-- The run $1 with the session that holds it now, if any.
select r.id, r.agent, r.status, r.reason, r.channel, r.account, r.event_id, r.retries, r.attempts, r.admitted_at,
       r.started_at, r.finished_at, r.cancel_requested_at,
       r.lane_id, r.generation, r.position, r.memory_key, r.epoch, r.crashes, r.due_at, r.usage::text as usage,
       t.session_id, s.worker
  from runs r
  left join turns t on t.run_id = r.id and t.lane_id = r.lane_id
  left join worker_sessions s on s.id = t.session_id
 where r.id = $1
