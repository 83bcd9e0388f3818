-- Removes the journals of the runs $1 (uuid[]).
delete from run_steps where run_id = any($1::uuid[])
