-- The journal of run $1, in order.
select step, call, kind, name, args_digest, agent_version, state, result
  from run_steps
 where run_id = $1
 order by step, call
