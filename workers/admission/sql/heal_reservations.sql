-- Gives the orphan reservations $1 (bigint[]) the new runs $2 (uuid[]).
update reservations r
   set run_id = h.run_id
  from unnest($1::bigint[], $2::uuid[]) as h (id, run_id)
 where r.id = h.id
