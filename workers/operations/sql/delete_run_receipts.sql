-- Removes the receipts of note edits of the runs $1 (uuid[]).
delete from note_operations where run_id = any($1::uuid[])
