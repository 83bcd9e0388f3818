-- Removes the live or expired note $3 of the scope ($1 lane, $2 generation); returns whether it was live.
delete from notes
 where lane_id = $1
   and generation = $2
   and key = $3
returning expires_at is null or expires_at > parley_now() as live
