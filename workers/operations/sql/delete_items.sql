-- Removes the transcript of lane $1 (locked), of every generation.
delete from items where lane_id = $1
