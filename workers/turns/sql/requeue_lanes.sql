-- Puts the head runs of the lanes $1 (bigint[], locked) back into the ready queue where no live turn owns them.
insert into ready (lane_id, agent, account, due_at)
select l.id, head.agent, head.channel || '/' || head.account, greatest(head.due_at, parley_now())
  from lanes l
 cross join lateral (
       select r.agent, r.channel, r.account, r.due_at, r.status
         from runs r
        where r.lane_id = l.id and r.finished_at is null and r.position >= l.head_position
        order by r.position
        limit 1
       ) head
  left join turns t on t.lane_id = any($1::bigint[]) and t.lane_id = l.id
 where l.id = any($1::bigint[]) and t.session_id is null and head.status <> 'waiting'
 order by l.id
    on conflict (lane_id) do nothing
returning lane_id
