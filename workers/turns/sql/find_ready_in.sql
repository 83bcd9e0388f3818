-- Due lanes of the groups ($1, $2) (text[] of agents, text[] of `channel/account`), at most $4 each, beginning at the low-water
-- marks $3 (timestamptz[]): what lies before a mark is dead rows that some old snapshot keeps, or was committed late and is
-- found by the walk. Returns one row at least for each group, without a lane where nothing is due, and the time by which it was.
select g.agent, g.account, due.lane_id, due.due_at, parley_now() as now
  from unnest($1::text[], $2::text[], $3::timestamptz[]) as g (agent, account, mark)
  left join lateral (
       select lane_id, due_at
         from ready
        where ready.agent = g.agent and ready.account = g.account
          and ready.due_at >= g.mark and ready.due_at <= parley_now()
        order by ready.due_at, ready.lane_id
        limit $4
       ) due on true
