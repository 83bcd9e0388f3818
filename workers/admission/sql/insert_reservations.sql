-- Reserves the event and message identity of each candidate for $11 (interval) from now, and returns the run ids of those
-- that were free. Parameters are one array a column; the caller gives rows in the global order.
insert into reservations (agent, channel, account, event_id, message_id, payload_hash, hash_version,
                          run_id, lane_id, generation, expires_at)
select c.agent, c.channel, c.account, c.event_id, c.message_id, c.payload_hash, c.hash_version,
       c.run_id, c.lane_id, c.generation, parley_now() + $11::interval
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::smallint[],
              $8::uuid[], $9::bigint[], $10::integer[]) with ordinality
    as c (agent, channel, account, event_id, message_id, payload_hash, hash_version,
          run_id, lane_id, generation, n)
 order by c.n
    on conflict do nothing
returning run_id
