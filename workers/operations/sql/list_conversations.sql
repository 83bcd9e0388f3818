-- The newest $4 conversations with memory key $1, channel $2, chat $3 (each null for any).
select c.lane_id, c.memory_key, c.channel, c.account, c.chat, c.audience, l.generation, c.created_at, c.deleted_at,
       l.owner_run as active_run
  from conversations c join lanes l on l.id = c.lane_id
 where ($1::text is null or c.memory_key = $1)
   and ($2::text is null or c.channel = $2)
   and ($3::text is null or c.chat = $3)
 order by c.lane_id desc
 limit $4
