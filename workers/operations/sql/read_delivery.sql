-- The delivery $1 without its text.
select d.id, d.key, d.reply_key, d.chunk, d.run_id, d.agent, d.recalled, d.channel, d.account, a.address, d.state,
       d.reason, d.attempt, d.failures, d.possible_duplicate, d.provider_id, octet_length(d.body) as body_bytes,
       d.created_at, d.due_at, d.first_sent_at, d.finished_at
  from deliveries d join addresses a on a.id = d.address_id
 where d.id = $1
