-- Records recalled replies in the transcript as pending, once a reply key.
insert into items (lane_id, generation, kind, status, run_id, reply_key, body, body_bytes, created_at)
select w.lane_id, w.generation, 'reply', 'pending', w.run_id, w.reply_key, w.body, w.body_bytes, parley_now()
  from unnest($1::bigint[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::integer[])
       with ordinality as w (lane_id, generation, run_id, reply_key, body, body_bytes, n)
 order by w.n
    on conflict (reply_key) where kind = 'reply' do nothing
