-- Frees the lanes $1 (bigint[], locked) whose owner is a finished run.
with stuck as (
    select t.lane_id
      from turns t join runs r on r.id = t.run_id
     where t.lane_id = any($1::bigint[]) and r.finished_at is not null
),
freed as (
    update lanes l set owner_run = null, epoch = l.epoch + 1 from stuck where l.id = stuck.lane_id
)
delete from turns using stuck where turns.lane_id = stuck.lane_id
returning turns.lane_id
