-- The lane of the conversation with memory key $1, channel $2, account $3, chat $4, audience $5. Looks through all of
-- them: an operator asks seldom, and the exact tuple is the only truth about an identity.
select lane_id
  from conversations
 where chat = $4 and account = $3 and channel = $2 and memory_key = $1 and audience = $5
