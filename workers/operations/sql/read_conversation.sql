-- The conversation of lane $1 with its counts.
select c.lane_id, c.memory_key, c.channel, c.account, c.chat, c.audience, l.generation, c.created_at, c.deleted_at,
       l.owner_run as active_run,
       (select count(*) from items i where i.lane_id = c.lane_id) as items,
       (select count(*) from notes n where n.lane_id = c.lane_id and n.generation = l.generation
                                       and (n.expires_at is null or n.expires_at > parley_now())) as notes,
       (select count(*) from runs r where r.lane_id = c.lane_id and r.finished_at is null) as open_runs,
       (select count(*) from deliveries d where d.lane_id = c.lane_id and d.finished_at is null) as open_deliveries
  from conversations c join lanes l on l.id = c.lane_id
 where c.lane_id = $1
