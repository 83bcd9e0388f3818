-- The newest $5 runs of agent $1, status $2, channel $3 (each null for any); only open ones where $4. Walks ids, which grow
-- with time.
select r.id, r.agent, r.status, r.reason, r.channel, r.account, r.event_id, r.retries, r.attempts, r.admitted_at,
       r.started_at, r.finished_at, r.cancel_requested_at
  from runs r
 where ($1::text is null or r.agent = $1)
   and ($2::text is null or r.status = $2)
   and ($3::text is null or r.channel = $3)
   and (not $4::boolean or r.finished_at is null)
 order by r.id desc
 limit $5
