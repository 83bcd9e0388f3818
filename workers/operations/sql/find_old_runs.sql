-- The next $3 runs after run $1 that were admitted more than $2 (interval) ago, with whether each may go: it ended that long
-- ago too, its reservation is gone, and nothing of it is still to be sent. Ids grow with time, so this walks the primary key.
select r.id, r.lane_id, r.position,
       coalesce(r.finished_at < parley_now() - $2::interval, false)
       and not exists (select from reservations where reservations.run_id = r.id)
       and not exists (select from deliveries d where d.run_id = r.id and d.finished_at is null) as done
  from runs r
 where r.id > $1
   and r.id < (lpad(to_hex((extract(epoch from parley_now() - $2::interval) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
 order by r.id
 limit $3
