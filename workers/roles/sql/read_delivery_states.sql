-- Deliveries that are not over, by state, with the age of the oldest due pending one; unknown ones of the last day.
select state, count(*) as deliveries,
       coalesce(extract(epoch from parley_now() - min(due_at) filter (where due_at <= parley_now())), 0)::float8
           as oldest_seconds
  from deliveries
 where finished_at is null
 group by state
union all
select 'unknown', count(*), 0
  from deliveries
 where finished_at > parley_now() - interval '1 day' and state = 'unknown'
