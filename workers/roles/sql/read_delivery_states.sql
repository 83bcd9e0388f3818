-- Deliveries that are not over, by state, with the age of the oldest due pending one; unknown ones of the last day. Looks at
-- $1 of each at most: more read as that.
select state, count(*) as deliveries,
       coalesce(extract(epoch from parley_now() - min(due_at) filter (where due_at <= parley_now())), 0)::float8
           as oldest_seconds
  from (select state, due_at
          from deliveries
         where finished_at is null
         order by address_id, position
         limit $1) open_deliveries
 group by state
union all
select 'unknown', count(*), 0
  from (select
          from deliveries
         where finished_at > parley_now() - interval '1 day' and state = 'unknown'
         order by finished_at desc
         limit $1) unknown_deliveries
