-- Which of the runs $1 (uuid[]) exist, and their lanes. Takes no lock: a run never changes its lane.
select id, lane_id from runs where id = any($1::uuid[])
