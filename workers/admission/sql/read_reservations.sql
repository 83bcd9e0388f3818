-- What already holds the identities of candidates that could not reserve: agent $1, channel $2, account $3, event id $4,
-- message id $5 (arrays). A later statement than the insert, so it sees the competing row that the insert met.
-- Returns one row a match with the candidate's ordinal n and by = 'event' or 'message'.
select c.n, 'event' as by, r.id, r.run_id, r.payload_hash, r.hash_version, r.generation, r.outcome,
       exists (select from runs where runs.id = r.run_id) as has_run,
       (select lanes.generation from lanes where lanes.id = r.lane_id) as lane_generation
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality
    as c (agent, channel, account, event_id, message_id, n)
  join reservations r
    on r.agent = c.agent and r.channel = c.channel and r.account = c.account and r.event_id = c.event_id
union all
select c.n, 'message', r.id, r.run_id, r.payload_hash, r.hash_version, r.generation, r.outcome,
       exists (select from runs where runs.id = r.run_id),
       (select lanes.generation from lanes where lanes.id = r.lane_id)
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality
    as c (agent, channel, account, event_id, message_id, n)
  join reservations r
    on r.agent = c.agent and r.channel = c.channel and r.account = c.account and r.message_id = c.message_id
