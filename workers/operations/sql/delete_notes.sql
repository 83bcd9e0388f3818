-- Removes the notes of lane $1 (locked), of every generation.
delete from notes where lane_id = $1
