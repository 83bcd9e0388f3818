-- Lets go of the turns of the lanes $1 (bigint[], locked and owned) and their runs $2 (uuid[]), keeping run and snapshot as
-- owner of the lane: status $3 (text[]), due after $4 (interval[]), retries, crashes and attempts raised by $5, $6, $7
-- (integer[]), reason $8 (text[]). The epoch moves on, so a write of the old holder is refused at once.
with gone as (
    select * from unnest($1::bigint[], $2::uuid[], $3::text[], $4::interval[], $5::integer[], $6::integer[],
                         $7::integer[], $8::text[])
        as g (lane_id, run_id, status, wait, retries, crashes, attempts, reason)
),
fenced as (
    update lanes set epoch = epoch + 1 where id = any($1::bigint[])
),
released as (
    update turns set session_id = null where lane_id = any($1::bigint[])
),
postponed as (
    update runs r
       set status = gone.status, reason = gone.reason, due_at = parley_now() + gone.wait,
           retries = r.retries + gone.retries, crashes = r.crashes + gone.crashes,
           attempts = r.attempts + gone.attempts
      from gone
     where r.id = any($2::uuid[]) and r.id = gone.run_id
    returning r.lane_id, r.agent, r.channel || '/' || r.account as account, r.due_at
)
insert into ready (lane_id, agent, account, due_at)
select lane_id, agent, account, due_at from postponed order by lane_id
    on conflict (lane_id) do update set due_at = excluded.due_at
