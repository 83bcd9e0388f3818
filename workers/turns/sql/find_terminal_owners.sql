-- Lanes that a finished run still owns, at most $1.
select t.lane_id
  from turns t join runs r on r.id = t.run_id
 where r.finished_at is not null
 order by t.lane_id
 limit $1
