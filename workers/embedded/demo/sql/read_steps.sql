-- The journal of run $1; epoch says in which life of the turn a step was written.
select step, call, kind, name, state, epoch from run_steps where run_id = $1 order by step, call
