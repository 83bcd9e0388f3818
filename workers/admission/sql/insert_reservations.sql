-- Reserves the event and message identity of each candidate in $1 (JSON rows, in the global order) for $2 (interval) from
-- now, and returns the run ids of those that were free.
insert into reservations (agent, channel, account, event_id, message_id, payload_hash, hash_version,
                          run_id, lane_id, generation, expires_at)
select c.agent, c.channel, c.account, c.event_id, c.message_id, c.payload_hash, c.hash_version,
       c.run_id, c.lane_id, c.generation, parley_now() + $2::interval
  from rows from (json_to_recordset($1::json) as (
           agent text, channel text, account text, event_id text, message_id text, payload_hash bytea,
           hash_version smallint, run_id uuid, lane_id bigint, generation integer)) with ordinality
    as c (agent, channel, account, event_id, message_id, payload_hash, hash_version,
          run_id, lane_id, generation, n)
 order by c.n
    on conflict do nothing
returning run_id
