-- Gives the orphan reservations $1 (bigint[]) the new runs $2 (uuid[]) in the lanes $3 (bigint[]).
update reservations r
   set run_id = h.run_id, lane_id = h.lane_id
  from unnest($1::bigint[], $2::uuid[], $3::bigint[]) as h (id, run_id, lane_id)
 where r.id = h.id
