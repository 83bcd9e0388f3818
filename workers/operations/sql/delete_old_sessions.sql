-- Removes those of the next $3 worker sessions after session $1 that ended or died more than $2 (interval) ago and own nothing
-- any more; returns the last one looked at, how many were old enough, and how many went.
with looked as (
    select id, started_at < parley_now() - $2::interval as old
      from worker_sessions
     where id > $1
     order by id
     limit $3
),
gone as (
    delete from worker_sessions s
     using looked
     where s.id = looked.id and coalesce(s.ended_at, s.dead_at) < parley_now() - $2::interval
       and not exists (select from turns t where t.session_id = s.id)
    returning s.id
)
select (array_agg(id order by id desc))[1] as last, count(*) filter (where old) as old, (select count(*) from gone) as gone
  from looked
