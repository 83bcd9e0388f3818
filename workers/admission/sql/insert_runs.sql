-- Queues runs in admission order: each takes the next position of its lane, which the caller has locked.
-- $1 are JSON rows, in admission order. Lanes are named by value: a join with a table of few rows is planned as a walk over it,
-- and each row may have many dead versions.
with asked as (
    select c.*, row_number() over (partition by c.lane_id order by c.n) as k
      from rows from (json_to_recordset($1::json) as (
               id uuid, lane_id bigint, generation integer, agent text, memory_key text, channel text, account text,
               event_id text, traceparent text, event bytea)) with ordinality
        as c (id, lane_id, generation, agent, memory_key, channel, account, event_id, traceparent, event, n)
),
numbered as (
    update lanes l
       set next_position = l.next_position + s.total
      from (select lane_id, count(*) as total from asked group by lane_id) s
     where l.id = any(array(select lane_id from asked)) and l.id = s.lane_id
    returning l.id, l.next_position - s.total as first
)
insert into runs (id, lane_id, generation, position, agent, memory_key, channel, account, event_id,
                  traceparent, event, due_at, admitted_at)
select asked.id, asked.lane_id, asked.generation, numbered.first + asked.k - 1, asked.agent, asked.memory_key,
       asked.channel, asked.account, asked.event_id, asked.traceparent, asked.event, parley_now(), parley_now()
  from asked join numbered on numbered.id = asked.lane_id
