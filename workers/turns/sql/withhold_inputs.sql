-- Keeps the inputs of the runs $1 (uuid[]) out of every later recall; their lanes $2 (bigint[]) are locked by the caller.
update items set status = 'withheld' where lane_id = any($2::bigint[]) and run_id = any($1::uuid[]) and kind = 'input'
