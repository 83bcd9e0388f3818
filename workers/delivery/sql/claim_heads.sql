-- Second statement of the delivery claim: takes for session $1 the head of each address in $2 (locked before), if it is
-- pending and due and no wait came up meanwhile. A reply that has been uncertain for $3 lets the next reply go, never
-- its own next chunk. Returns what a send needs; more is true where the address has further open deliveries.
with head as (
    select first.id
      from unnest($2::bigint[]) as w (address_id)
      join addresses a on a.id = w.address_id
     cross join lateral (select d.id, d.state, d.due_at
                           from deliveries d
                          where d.address_id = w.address_id and d.finished_at is null
                            and not exists (select
                                              from deliveries stuck
                                             where stuck.run_id = d.run_id and stuck.reply_key = d.reply_key
                                               and stuck.address_id = d.address_id
                                               and stuck.state = 'uncertain'
                                               and stuck.uncertain_since <= parley_now() - $3::interval)
                          order by d.position
                          limit 1) first
     where first.state = 'pending' and first.due_at <= parley_now()
       and (a.not_before is null or a.not_before <= parley_now())
       and not exists (select
                         from send_holds h
                        where h.channel = a.channel and h.account in (a.account, '') and h.until > parley_now())
),
locked as (
    select id
      from deliveries
     where id in (select id from head) and state = 'pending'
     order by id
       for no key update
)
update deliveries d
   set state = 'sending', session_id = $1, attempt = d.attempt + 1, claimed_at = parley_now(),
       first_sent_at = coalesce(d.first_sent_at, parley_now())
  from locked, addresses a
 where d.id = locked.id and a.id = d.address_id
returning d.id, d.key, d.reply_key, d.run_id, d.lane_id, d.recalled, d.address_id, d.channel, d.account, a.address,
          d.body, d.attempt, d.failures, d.first_sent_at, d.claimed_at, d.uncertain_since is not null as suspect,
          d.possible_duplicate, d.traceparent, d.reason,
          exists (select
                    from deliveries later
                   where later.address_id = d.address_id and later.finished_at is null
                     and later.position > d.position) as more
