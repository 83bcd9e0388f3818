-- How many reservations delete_expired_reservations would remove in all.
select count(*) as expired
  from reservations r
 where r.expires_at <= parley_now()
   and not exists (select from runs where runs.id = r.run_id and runs.finished_at is null)
