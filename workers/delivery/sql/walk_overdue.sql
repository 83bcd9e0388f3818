-- Walks at most $2 addresses with open deliveries, above address id $1, one index probe each, so that a long queue on
-- one address costs no more than a short one. Returns address_id and whether its head is pending, overdue by $3, on one
-- of channels $4 and not held by a wait. $5 is how long an uncertain reply holds its address.
with recursive walk (address_id, n) as (
    (select address_id, 1
       from deliveries
      where finished_at is null and address_id > $1
      order by address_id
      limit 1)
    union all
    select next.address_id, walk.n + 1
      from walk
     cross join lateral (select d.address_id
                           from deliveries d
                          where d.finished_at is null and d.address_id > walk.address_id
                          order by d.address_id
                          limit 1) next
     where walk.n < $2
)
select walk.address_id,
       coalesce(first.state = 'pending' and first.due_at <= parley_now() - $3::interval
                and a.channel = any($4::text[])
                and (a.not_before is null or a.not_before <= parley_now())
                and not exists (select
                                  from send_holds h
                                 where h.channel = a.channel and h.account in (a.account, '')
                                   and h.until > parley_now()), false) as overdue
  from walk
  join addresses a on a.id = walk.address_id
  left join lateral (select d.state, d.due_at
                       from deliveries d
                      where d.address_id = walk.address_id and d.finished_at is null
                        and not exists (select
                                          from deliveries stuck
                                         where stuck.run_id = d.run_id and stuck.reply_key = d.reply_key
                                           and stuck.address_id = d.address_id
                                           and stuck.state = 'uncertain'
                                           and stuck.uncertain_since <= parley_now() - $5::interval)
                      order by d.position
                      limit 1) first on true
 order by walk.n
