-- The deliveries of run $1 in order, without their texts.
select id, key, state, reason, attempt, channel, account, created_at, finished_at
  from deliveries
 where run_id = $1
 order by position
