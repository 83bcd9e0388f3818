-- Worker sessions by state: alive, lapsed (its lease ran out, not yet taken over), dead, ended.
select case when ended_at is not null then 'ended'
            when dead_at is not null then 'dead'
            when lease_until < parley_now() then 'lapsed'
            else 'alive' end as state,
       count(*) as sessions
  from worker_sessions
 group by 1
 order by 1
