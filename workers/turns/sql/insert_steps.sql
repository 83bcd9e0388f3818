-- Journals the steps $1 (JSON rows); a step that was started is finished, a finished one is kept as it is
-- unless another step now stands in its place (the agent changed and goes on); what was sent is never replaced.
insert into run_steps (run_id, step, call, kind, name, args_digest, agent_version, state, result, epoch,
                       started_at, finished_at)
select s.run_id, s.step, s.call, s.kind, s.name, s.args_digest, s.agent_version, s.state, s.result, s.epoch,
       parley_now(), case when s.state = 'finished' then parley_now() end
  from json_to_recordset($1::json)
    as s (run_id uuid, step integer, call integer, kind text, name text, args_digest bytea, agent_version text,
          state text, result bytea, epoch bigint)
    on conflict (run_id, step, call) do update
   set kind = excluded.kind, name = excluded.name, args_digest = excluded.args_digest,
       agent_version = excluded.agent_version, state = excluded.state, result = excluded.result,
       epoch = excluded.epoch, finished_at = excluded.finished_at
 where (run_steps.state = 'started' and excluded.state = 'finished')
    or (run_steps.kind <> 'emit' and (run_steps.kind, run_steps.name) <> (excluded.kind, excluded.name))
