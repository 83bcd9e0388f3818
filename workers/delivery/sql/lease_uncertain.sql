-- Leases for session $1 at most $2 uncertain deliveries of channels $4 that are due, for $3; the attempt number
-- fences the lease, claimed_at stays that of the send. Returns what a decision and a look-up need, with the
-- database's time and what a late sender wrote to the attempt log.
with due as (
    select id
      from deliveries
     where state = 'uncertain' and due_at <= parley_now() and channel = any($4::text[])
     order by due_at
     limit $2
       for no key update skip locked
)
update deliveries d
   set session_id = $1, attempt = d.attempt + 1, due_at = parley_now() + $3::interval
  from due, addresses a
 where d.id = due.id and a.id = d.address_id
returning d.id, d.key, d.reply_key, d.run_id, d.lane_id, d.recalled, d.address_id, d.channel, d.account, a.address,
          d.body, d.attempt, d.failures, d.first_sent_at, d.claimed_at, true as suspect,
          d.possible_duplicate, d.traceparent, d.reason, parley_now() as now,
          exists (select from delivery_attempts t where t.delivery_id = d.id and t.outcome = 'sent') as known_sent,
          (select max(t.provider_id)
             from delivery_attempts t
            where t.delivery_id = d.id and t.outcome = 'sent') as known_provider_id,
          false as more
