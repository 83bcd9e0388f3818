-- First statement of the delivery claim: holds session $3, if it is alive, so that a takeover waits, and locks those of addresses
-- $1 (channels $2 only) that no wait holds, in id order. Returns id and locked; locked is false where another transaction
-- has the address at this moment. Nothing is locked for a session that is not alive.
with held as materialized (
    select id
      from worker_sessions
     where id = $3 and dead_at is null and ended_at is null
       for key share
),
eligible as (
    select a.id
      from held
     cross join addresses a
     where a.id = any($1::bigint[]) and a.channel = any($2::text[])
       and (a.not_before is null or a.not_before <= parley_now())
       and not exists (select
                         from send_holds h
                        where h.channel = a.channel and h.account in (a.account, '') and h.until > parley_now())
),
locked as (
    select id
      from addresses
     where id in (select id from eligible)
     order by id
       for no key update skip locked
)
select eligible.id, locked.id is not null as locked
  from eligible
  left join locked on locked.id = eligible.id
