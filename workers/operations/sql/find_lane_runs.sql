-- The open runs of lane $1 (locked) and those with a delivery that is not final.
select id from runs where lane_id = $1 and finished_at is null
union
select run_id from deliveries where lane_id = $1 and finished_at is null
