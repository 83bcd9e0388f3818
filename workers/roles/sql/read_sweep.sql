-- How long ago a sweeper last ended a whole round; none ever: as old as the oldest worker session that is kept.
select coalesce(extract(epoch from parley_now() - coalesce(
           (select finished_at from leases where name = 'sweeper'),
           (select started_at from worker_sessions order by id limit 1))), 0)::float8 as seconds
