-- Lets the ready lanes $1 (bigint[], locked by the caller) wait until $2 (timestamptz[]), or for $3 (interval[]) from now where
-- no time is given.
update ready r
   set due_at = coalesce(p.due_at, parley_now() + p.wait)
  from unnest($1::bigint[], $2::timestamptz[], $3::interval[]) as p (lane_id, due_at, wait)
 where r.lane_id = any($1::bigint[]) and r.lane_id = p.lane_id
