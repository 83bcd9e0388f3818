-- Journals deliveries as pending in the order given, so that positions follow it; a known key changes nothing,
-- and a delivery whose address is not there yet is left out. Returns what was inserted.
insert into deliveries (id, key, reply_key, chunk, run_id, lane_id, agent, recalled, address_id, channel, account,
                        traceparent, body, due_at, created_at)
select w.id, w.key, w.reply_key, w.chunk, w.run_id, w.lane_id, w.agent, w.recalled, a.id, w.channel, w.account,
       w.traceparent, w.body, parley_now(), parley_now()
  from unnest($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::uuid[], $6::bigint[], $7::text[], $8::boolean[],
              $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[])
       with ordinality as w (id, key, reply_key, chunk, run_id, lane_id, agent, recalled,
                             channel, account, address, traceparent, body, n)
  join addresses a
    on (a.channel, a.account, a.address) = (w.channel, w.account, w.address)
 order by w.n
    on conflict (key) do nothing
returning id, key, address_id
