-- Leaves the tombstone of the deleted conversation of lane $1 (locked); the lane keeps its generation.
update conversations set deleted_at = parley_now() where lane_id = $1
