-- The unexpired notes of lane $1 in its present generation, by key.
select n.key, n.body, n.body_bytes, n.expires_at, n.updated_at
  from notes n join lanes l on l.id = n.lane_id and l.generation = n.generation
 where n.lane_id = $1 and (n.expires_at is null or n.expires_at > parley_now())
 order by n.key
