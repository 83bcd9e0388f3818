-- How the runs $1 (uuid[]) stand, for those whose ownership is gone: an own earlier settlement is no loss.
select id, status, epoch, finished_at is not null as finished from runs where id = any($1::uuid[])
