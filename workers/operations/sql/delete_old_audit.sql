-- Removes those of the next $3 audit rows after row $1 that are older than $2 (interval); returns as delete_old_letters does.
with looked as (
    select id, at < parley_now() - $2::interval as old
      from audit
     where id > $1
     order by id
     limit $3
),
gone as (delete from audit a using looked where a.id = looked.id and looked.old returning a.id)
select max(id) as last, count(*) filter (where old) as old, (select count(*) from gone) as gone from looked
