-- Records accepted inputs, once for each (lane, generation, event): $1 lane, $2 generation, $3 run, $4 event id,
-- $5 body (null when it is too large to keep), $6 UTF-8 bytes of the body. The caller holds the lanes. Returns those of
-- them whose oldest item is older than $7 (interval).
with recorded as (
    insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes, created_at)
    select lane_id, generation, 'input', 'accepted', run_id, event_id, body, body_bytes, parley_now()
      from unnest($1::bigint[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::integer[])
        as input (lane_id, generation, run_id, event_id, body, body_bytes)
        on conflict (lane_id, generation, event_id) where kind = 'input' do nothing
)
select lane.id
  from unnest($1::bigint[], $2::integer[]) as lane (id, generation)
 where (select i.created_at
          from items i
         where i.lane_id = lane.id
           and i.generation = lane.generation
         order by i.id
         limit 1) <= parley_now() - $7::interval
