-- Nothing goes to addresses $1 for the waits $2; a longer wait stays.
with held as (
    select a.id, w.wait
      from addresses a
      join (select id, max(wait) as wait
              from unnest($1::bigint[], $2::interval[]) as w (id, wait)
             group by id) w on w.id = a.id
     order by a.id
       for no key update of a
)
update addresses a
   set not_before = greatest(a.not_before, parley_now() + held.wait)
  from held
 where a.id = held.id
