-- How the runs $1 (uuid[]) stand, read after their lanes were locked: whether each owns its lane's turn, and whether a
-- worker session holds that turn.
select r.id, r.lane_id, r.status, r.finished_at is not null as finished,
       t.run_id is not null as owns, t.session_id is not null as held, coalesce(t.epoch, r.epoch) as epoch
  from runs r
  left join turns t on t.lane_id = r.lane_id and t.run_id = r.id
 where r.id = any($1::uuid[])
 order by r.lane_id, r.position
