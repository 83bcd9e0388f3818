-- Lets the ready lanes $1 (bigint[], locked by the caller) wait until $2 (timestamptz[]).
update ready r
   set due_at = p.due_at
  from unnest($1::bigint[], $2::timestamptz[]) as p (lane_id, due_at)
 where r.lane_id = p.lane_id
