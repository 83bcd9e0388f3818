-- The open runs by agent and memory key, with how long the oldest of each has waited.
select agent, memory_key, count(*) as runs, parley_now() - min(admitted_at) as oldest
  from runs
 where finished_at is null
 group by agent, memory_key
 order by agent, memory_key
