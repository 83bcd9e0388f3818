-- Sessions that are dead or ended and still own a turn (a claim that committed late included), at most $1.
select s.id, s.dead_at is not null as crashed
  from worker_sessions s
 where (s.dead_at is not null or s.ended_at is not null)
   and exists (select from turns t where t.session_id = s.id)
 order by s.id
 limit $1
