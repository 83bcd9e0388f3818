-- Takes or renews the lease $1 for holder $2 for $3 (interval), unless another holder's has not run out. One row or none.
insert into leases (name, holder, until)
values ($1, $2, parley_now() + $3::interval)
    on conflict (name) do update
   set holder = excluded.holder, until = excluded.until
 where leases.holder = excluded.holder or leases.until < parley_now()
returning holder
