-- Deletes the expired notes of the scope ($1 lane, $2 generation).
delete from notes
 where lane_id = $1
   and generation = $2
   and expires_at <= parley_now()
