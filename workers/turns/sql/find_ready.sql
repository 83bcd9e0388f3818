-- Lanes to try, in fair rotation: at most $5 due lanes of each of the next $4 (agent, account) groups after ($2, $3),
-- the first of each group before the second of any; at most $6 in all, and only of the agents $1 (text[]), not of the
-- accounts $7 (text[], `channel/account` as in the queue) and not of the channels $8 (text[]). Where more groups may
-- follow, the last row names the group that the walk ended at, without a lane, so that groups in which nothing is due
-- hide nobody behind them. Takes no lock and promises nothing: the claim locks the lanes and reads again.
with recursive groups as (
    (select agent, account, 1 as n
       from ready
      where (agent, account) > ($2::text, $3::text)
      order by agent, account
      limit 1)
    union all
    select next.agent, next.account, groups.n + 1
      from groups
     cross join lateral (
           select agent, account
             from ready
            where (ready.agent, ready.account) > (groups.agent, groups.account)
            order by ready.agent, ready.account
            limit 1
           ) next
     where groups.n < $4
)
(select due.lane_id, groups.agent, groups.account, due.due_at
  from groups
 cross join lateral (
       select head.lane_id, head.due_at, row_number() over (order by head.due_at, head.lane_id) as place
         from (select ready.lane_id, ready.due_at
                 from ready
                where ready.agent = groups.agent and ready.account = groups.account
                  and ready.due_at <= parley_now()
                order by ready.due_at, ready.lane_id
                limit $5) head
       ) due
 where groups.agent = any($1::text[]) and groups.account <> all($7::text[])
   and split_part(groups.account, '/', 1) <> all($8::text[])
 order by due.place, groups.n
 limit $6)
union all
select null, agent, account, null from groups where n = $4
