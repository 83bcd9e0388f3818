-- Journals steps, one array a column; a step that was started is finished, a finished one is kept as it is
-- unless another step now stands in its place (the agent changed and goes on); what was sent is never replaced.
insert into run_steps (run_id, step, call, kind, name, args_digest, agent_version, state, result, epoch,
                       started_at, finished_at)
select s.run_id, s.step, s.call, s.kind, s.name, s.args_digest, s.agent_version, s.state, s.result, s.epoch,
       parley_now(), case when s.state = 'finished' then parley_now() end
  from unnest($1::uuid[], $2::integer[], $3::integer[], $4::text[], $5::text[], $6::bytea[], $7::text[],
              $8::text[], $9::bytea[], $10::bigint[])
    as s (run_id, step, call, kind, name, args_digest, agent_version, state, result, epoch)
    on conflict (run_id, step, call) do update
   set kind = excluded.kind, name = excluded.name, args_digest = excluded.args_digest,
       agent_version = excluded.agent_version, state = excluded.state, result = excluded.result,
       epoch = excluded.epoch, finished_at = excluded.finished_at
 where (run_steps.state = 'started' and excluded.state = 'finished')
    or (run_steps.kind <> 'emit' and (run_steps.kind, run_steps.name) <> (excluded.kind, excluded.name))
