-- The next group after each of the known ones ($1, $2) (text[] of agents, text[] of `channel/account`), and the first of all, where
-- it is not known: with when its oldest lane is due, and the present time. Looks only between known groups, so none of
-- the dead rows of these is read.
with gaps as (
    select agent, account, lead(agent) over w as next_agent, lead(account) over w as next_account
      from (select '' as agent, '' as account
            union all
            select agent, account from unnest($1::text[], $2::text[]) as k (agent, account)) known
    window w as (order by agent, account)
)
select found.agent, found.account, found.due_at, parley_now() as now
  from gaps
 cross join lateral (
       select agent, account, due_at
         from ready
        where (ready.agent, ready.account) > (gaps.agent, gaps.account)
          and (ready.agent, ready.account) < (gaps.next_agent, gaps.next_account)
        order by ready.agent, ready.account, ready.due_at
        limit 1
       ) found
 where gaps.next_agent is not null
union all
select found.agent, found.account, found.due_at, parley_now()
  from gaps
 cross join lateral (
       select agent, account, due_at
         from ready
        where (ready.agent, ready.account) > (gaps.agent, gaps.account)
        order by ready.agent, ready.account, ready.due_at
        limit 1
       ) found
 where gaps.next_agent is null
