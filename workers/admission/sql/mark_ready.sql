-- Puts the lanes $1 (bigint[], locked by the caller) that nobody owns into the ready queue under their head run.
-- A later statement than the one that queued runs or cleared the owner, so that it sees every head.
insert into ready (lane_id, agent, account, due_at)
select l.id, head.agent, head.channel || '/' || head.account, greatest(head.due_at, parley_now())
  from lanes l
 cross join lateral (
       select r.agent, r.channel, r.account, r.due_at
         from runs r
        where r.lane_id = l.id and r.finished_at is null and r.position >= l.head_position
        order by r.position
        limit 1
       ) head
 where l.id = any($1::bigint[]) and l.owner_run is null
 order by l.id
    on conflict (lane_id) do nothing
