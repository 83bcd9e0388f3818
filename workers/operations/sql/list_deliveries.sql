-- Deliveries in states $1 (null: all), of channel $2 and run $3 (null: any), older than delivery $4, newest first, at most
-- $5. Without their text. Walks ids, which grow with time.
select d.id, d.key, d.run_id, d.channel, d.account, a.address, d.state, d.reason, d.attempt, d.failures,
       d.possible_duplicate, d.provider_id, d.due_at, d.created_at, d.first_sent_at, d.finished_at
  from deliveries d
  join addresses a on a.id = d.address_id
 where ($1::text[] is null or d.state = any($1))
   and ($2::text is null or d.channel = $2)
   and ($3::uuid is null or d.run_id = $3)
   and ($4::uuid is null or d.id < $4)
 order by d.id desc
 limit $5
