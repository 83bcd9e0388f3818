-- Of each of the agents $3 (text[]), the next group after each known one ($1, $2) (text[] of agents, text[] of
-- `channel/account`), and the first of all where it is not known: with when its oldest lane is due, and the present time.
-- Looks only between known groups, so none of the dead rows of these is read. One agent a gap, and each bound on one
-- column: before PostgreSQL 18 a row comparison ends an index scan by its first column only.
with gaps as (
    select agent, account as above, lead(account) over w as below
      from (select agent, '' as account from unnest($3::text[]) as a (agent)
            union all
            select agent, account from unnest($1::text[], $2::text[]) as k (agent, account)
             where agent = any($3::text[])) known
    window w as (partition by agent order by account)
)
select found.agent, found.account, found.due_at, parley_now() as now
  from gaps
 cross join lateral (
       select agent, account, due_at
         from ready
        where ready.agent = gaps.agent and ready.account > gaps.above and ready.account < gaps.below
        order by ready.agent, ready.account, ready.due_at
        limit 1
       ) found
 where gaps.below is not null
union all
select found.agent, found.account, found.due_at, parley_now()
  from gaps
 cross join lateral (
       select agent, account, due_at
         from ready
        where ready.agent = gaps.agent and ready.account > gaps.above
        order by ready.agent, ready.account, ready.due_at
        limit 1
       ) found
 where gaps.below is null
