-- The next $4 open runs of agent $1 after lane $2 and position $3, in that order. Takes no lock.
select id, lane_id, position
  from runs
 where finished_at is null and agent = $1 and (lane_id, position) > ($2::bigint, $3::bigint)
 order by lane_id, position
 limit $4
