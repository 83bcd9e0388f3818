-- Gives the lease $1 of holder $2 back; $3 says that a whole round was done.
update leases
   set until = parley_now(), finished_at = case when $3::boolean then parley_now() else finished_at end
 where name = $1 and holder = $2
