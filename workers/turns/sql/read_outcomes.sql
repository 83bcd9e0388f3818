-- How the runs $1 (uuid[]) stand, for those whose ownership is gone: an own earlier settlement is no loss.
select id, epoch, status, reason from runs where id = any($1::uuid[])
