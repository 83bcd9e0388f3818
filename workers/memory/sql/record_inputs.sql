-- Records the accepted inputs $1 (JSON rows), once for each (lane, generation, event). The body is null when it is too large
-- to keep, and body_bytes is its size in UTF-8. The caller holds the lanes. Returns those of them whose oldest item is older
-- than $2 (interval).
with input as (
    select *
      from json_to_recordset($1::json)
        as r (lane_id bigint, generation integer, run_id uuid, event_id text, body text, body_bytes integer)
),
recorded as (
    insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes, created_at)
    select lane_id, generation, 'input', 'accepted', run_id, event_id, body, body_bytes, parley_now()
      from input
        on conflict (lane_id, generation, event_id) where kind = 'input' do nothing
)
select input.lane_id as id
  from input
 where (select i.created_at
          from items i
         where i.lane_id = input.lane_id
           and i.generation = input.generation
         order by i.id
         limit 1) <= parley_now() - $2::interval
