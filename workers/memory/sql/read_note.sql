-- The live note $3 of the scope ($1 lane, $2 generation).
select key, body, body_bytes, updated_at, expires_at
  from notes
 where lane_id = $1
   and generation = $2
   and key = $3
   and (expires_at is null or expires_at > parley_now())
