-- Second statement of the claim: what the lanes $1 (bigint[], locked by the first) would run, read only now, so that a
-- run that another worker finished a moment ago is not seen as a head. $2 (interval) is how long a head waits for the
-- replies before it to become final. A lane without an open run gives no row. A lane is owned by the session of its turn, or by
-- another run than its head (a finished one that was not cleared away).
select l.id as lane_id, l.generation as lane_generation, l.epoch,
       r.id as run_id, r.generation, r.agent, r.memory_key, r.channel, r.account, r.event_id, r.status,
       r.retries, r.crashes, r.attempts, r.traceparent, r.event,
       r.cancel_requested_at is not null as cancel_requested,
       greatest(r.due_at, gate.opens_at) as due_at,
       greatest(r.due_at, gate.opens_at) <= parley_now() as due,
       t.run_id is not null as resumed, coalesce(t.session_id, case when t.run_id <> r.id then t.run_id end) as owned_by,
       t.snapshot, t.snapshot_digest
  from lanes l
 cross join lateral (
       select id, generation, agent, memory_key, channel, account, event_id, status, retries, crashes, attempts,
              traceparent, event, cancel_requested_at, due_at
         from runs
        where runs.lane_id = l.id and runs.finished_at is null and runs.position >= l.head_position
        order by runs.position
        limit 1
       ) r
  left join lateral (select run_id, session_id, snapshot, snapshot_digest from turns where turns.lane_id = l.id limit 1) t on true
  left join lateral (
       select max(d.created_at) + $2::interval as opens_at
         from deliveries d
        where d.lane_id = l.id and d.finished_at is null and d.recalled and t.run_id is null
       ) gate on true
 where l.id = any($1::bigint[])
