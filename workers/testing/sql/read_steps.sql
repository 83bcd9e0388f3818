-- The journal of run $1.
select step, call, kind, name, state, epoch from run_steps where run_id = $1 order by step, call
