-- Removes the receipts of note edits of lane $1 (locked).
delete from note_operations where lane_id = $1
