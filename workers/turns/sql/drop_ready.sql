-- Removes the lanes $1 (bigint[], locked by the caller) from the ready queue: nothing to run, or owned already.
delete from ready where lane_id = any($1::bigint[])
