-- Removes those of the next $4 addresses after address $1 that were last used more than $2 (interval) ago and that no delivery
-- names: of deliveries older than $3 (interval, shorter than $2 by more than a week) only those count that are still kept, and where
-- there are $5 of them no address goes.
with looked as (
    select id, used_on < (parley_now() - $2::interval)::date as old
      from addresses
     where id > $1
     order by id
     limit $4
),
kept as materialized (
    select address_id
      from deliveries
     where exists (select from looked where old)
       and id < (lpad(to_hex((extract(epoch from parley_now() - $3::interval) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
     order by id
     limit $5
),
gone as (
    delete from addresses a
     using looked
     where a.id = looked.id and looked.old and a.used_on < (parley_now() - $2::interval)::date
       and a.id not in (select address_id from kept) and (select count(*) from kept) < $5
       and not exists (select from deliveries d where d.address_id = a.id and d.finished_at is null)
    returning a.id
)
select max(id) as last, count(*) as looked, (select count(*) from gone) as gone from looked
