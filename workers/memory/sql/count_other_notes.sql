-- How many live notes the scope ($1 lane, $2 generation) has beside the key $3.
select count(*)
  from notes
 where lane_id = $1
   and generation = $2
   and key <> $3
   and (expires_at is null or expires_at > parley_now())
