-- The conversation with memory key $1, channel $2, account $3, chat $4, audience $5, by the digest $6 of that identity.
select c.lane_id
  from lanes l join conversations c on c.lane_id = l.id
 where l.key = $6 and c.memory_key = $1 and c.channel = $2 and c.account = $3 and c.chat = $4 and c.audience = $5
