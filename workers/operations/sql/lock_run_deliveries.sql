-- Locks the deliveries of the runs $1 (uuid[]) in id order: an operator who redelivers one comes before, or finds it gone.
select id, run_id, finished_at is not null as final
  from deliveries
 where run_id = any($1::uuid[])
 order by id
   for update
