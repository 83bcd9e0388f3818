-- The journal of run $1 in order, without arguments and results.
select step, call, kind, name, state, agent_version, octet_length(result) as result_bytes, started_at, finished_at
  from run_steps
 where run_id = $1
 order by step, call
