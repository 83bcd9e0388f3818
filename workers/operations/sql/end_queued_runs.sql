-- Ends the open runs $1 (uuid[]), which own no turn and whose lanes are locked, as cancelled for reason $2.
update runs
   set status = 'cancelled', reason = $2, finished_at = parley_now(),
       cancel_requested_at = coalesce(cancel_requested_at, parley_now())
 where id = any($1::uuid[]) and finished_at is null
