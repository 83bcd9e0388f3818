-- How long the queue is and how old its oldest due run; $1 (text[]) are the agents this worker knows.
select count(*) as depth,
       coalesce(extract(epoch from parley_now() - min(due_at) filter (where due_at <= parley_now())), 0)::float8
           as oldest_seconds,
       count(*) filter (where agent <> all($1::text[])) as unclaimable
  from runs
 where finished_at is null and status in ('queued', 'interrupted')
