-- The items of lane $1, newest first, $2 of them after the first $3.
select id, generation, kind, status, run_id, event_id, body, body_bytes, created_at
  from items
 where lane_id = $1
 order by id desc
 limit $2 offset $3
