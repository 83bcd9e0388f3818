-- Delivery $1 is sent, if it is failed, unknown or uncertain; provider id $2 where the operator knows it.
update deliveries
   set state = 'sent', reason = null, finished_at = parley_now(), provider_id = coalesce($2, provider_id)
 where id = $1 and state in ('failed', 'unknown', 'uncertain')
returning reply_key, lane_id, recalled
