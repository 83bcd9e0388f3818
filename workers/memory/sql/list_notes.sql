-- At most $4 live notes of the scope ($1 lane, $2 generation) whose key comes after $3, by key.
select key, body, body_bytes, updated_at, expires_at
  from notes
 where lane_id = $1
   and generation = $2
   and key collate "C" > $3 collate "C"
   and (expires_at is null or expires_at > parley_now())
 order by key collate "C"
 limit $4
