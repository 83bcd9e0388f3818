-- How long the queue is, how old its oldest due run, and how many of its runs no living worker can claim; a worker that does
-- not say which agents it has counts as having all of them. Looks at $1 open runs at most: a longer queue reads as that.
with workers as (
    select agents
      from worker_sessions
     where ended_at is null and dead_at is null and lease_until > parley_now()
),
waiting as (
    select agent, due_at
      from (select agent, due_at, status
              from runs
             where finished_at is null
             order by lane_id, position
             limit $1) open_runs
     where status in ('queued', 'interrupted')
)
select count(*) as depth,
       coalesce(extract(epoch from parley_now() - min(due_at) filter (where due_at <= parley_now())), 0)::float8
           as oldest_seconds,
       count(*) filter (where agent not in (select known from workers cross join lateral unnest(agents) as known)
                          and not exists (select from workers where agents is null)) as unclaimable
  from waiting
