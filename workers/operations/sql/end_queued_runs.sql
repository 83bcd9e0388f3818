-- Ends the open runs $1 (uuid[]), which own no turn and whose lanes are locked, as cancelled for reason $2, and tells their
-- reservations.
with ended as (
    update runs
       set status = 'cancelled', reason = $2, finished_at = parley_now(),
           cancel_requested_at = coalesce(cancel_requested_at, parley_now())
     where id = any($1::uuid[]) and finished_at is null
    returning id, agent, channel, account, event_id
)
update reservations
   set outcome = 'cancelled'
  from ended
 where (reservations.agent, reservations.channel, reservations.account, reservations.event_id)
       = (ended.agent, ended.channel, ended.account, ended.event_id)
   and reservations.run_id = ended.id
