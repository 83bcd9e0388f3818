-- Ends the turns of the lanes $1 (bigint[], locked and owned) and their runs $2 (uuid[]): status $3, reason $4, usage $5
-- (text[] of JSON). Clears owner and snapshot with the status, moves the lane's head position behind the run, and tells
-- the reservations how their runs ended. Rows are named by value: a join with a table of few rows is planned as a walk over
-- it, and there may be many dead ones.
with done as (
    select * from unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[])
        as d (lane_id, run_id, status, reason, usage)
),
ended as (
    update runs r
       set status = done.status, reason = done.reason, usage = done.usage::jsonb, finished_at = parley_now()
      from done
     where r.id = any($2::uuid[]) and r.id = done.run_id
    returning r.id, r.position, r.agent, r.channel, r.account, r.event_id, r.status
),
freed as (
    update lanes l
       set owner_run = null, head_position = coalesce(ended.position + 1, l.head_position)
      from done left join ended on ended.id = done.run_id
     where l.id = any($1::bigint[]) and l.id = done.lane_id
),
told as (
    update reservations
       set outcome = ended.status
      from ended
     where (reservations.agent, reservations.channel, reservations.account, reservations.event_id)
           = (ended.agent, ended.channel, ended.account, ended.event_id)
       and reservations.run_id = ended.id
)
delete from turns where lane_id = any($1::bigint[])
