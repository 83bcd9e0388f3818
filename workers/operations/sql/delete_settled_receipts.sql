-- Of the next $4 receipts of note edits after the one of run $1, step $2 and call $3: removes those whose run has ended and so
-- never asks for them again. One whose run is open, unknown, or that another transaction holds stays. One row: how many were
-- looked at, how many are gone, and the last one's place.
with page as materialized (
    select o.run_id, o.step, o.call, r.finished_at
      from note_operations o
      left join runs r on r.id = o.run_id
     where (o.run_id, o.step, o.call) > ($1, $2, $3)
     order by o.run_id, o.step, o.call
     limit $4
),
gone as (
    delete from note_operations
     where ctid = any(array(
           select o.ctid
             from page
             join note_operations o on (o.run_id, o.step, o.call) = (page.run_id, page.step, page.call)
            where page.finished_at is not null
              for update of o skip locked))
    returning 1
)
select (select count(*) from page) as looked, (select count(*) from gone) as gone, last.run_id, last.step, last.call
  from (select 1) one
  left join (select run_id, step, call from page order by run_id desc, step desc, call desc limit 1) last on true
