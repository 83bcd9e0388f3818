-- The attempt log of delivery $1, in order.
select attempt, kind, outcome, detail, provider_id, late, started_at, recorded_at
  from delivery_attempts
 where delivery_id = $1
 order by id
