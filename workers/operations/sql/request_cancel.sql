-- Asks whoever runs the runs $1 (uuid[]) to cancel them; the first asking counts.
update runs
   set cancel_requested_at = coalesce(cancel_requested_at, parley_now())
 where id = any($1::uuid[]) and finished_at is null
