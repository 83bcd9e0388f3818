-- Puts the next head of each of the lanes $1 (bigint[], locked, just freed) into the ready queue. A statement of its own, after
-- the one that freed them: in one statement it would miss a run admitted while it waited for the lock, and the lane
-- would stick. A head behind replies that are not final waits for them, at most $2 (interval).
insert into ready (lane_id, agent, account, due_at)
select l.id, head.agent, head.channel || '/' || head.account, greatest(head.due_at, gate.opens_at, parley_now())
  from lanes l
 cross join lateral (
       select r.agent, r.channel, r.account, r.due_at
         from runs r
        where r.lane_id = l.id and r.finished_at is null and r.position >= l.head_position
        order by r.position
        limit 1
       ) head
  left join lateral (
       select max(d.created_at) + $2::interval as opens_at
         from deliveries d
        where d.lane_id = l.id and d.finished_at is null and d.recalled
       ) gate on true
 where l.id = any($1::bigint[]) and l.owner_run is null
 order by l.id
    on conflict (lane_id) do nothing
