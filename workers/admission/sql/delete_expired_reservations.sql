-- Removes at most $1 reservations that have expired and whose runs are terminal or gone; returns how many.
-- In no order: the index knows block ranges only, and a backlog is not to be sorted for every batch.
with expired as (
    select r.id
      from reservations r
     where r.expires_at <= parley_now()
       and not exists (select from runs where runs.id = r.run_id and runs.finished_at is null)
     limit $1
       for update of r skip locked
),
gone as (delete from reservations r using expired where r.id = expired.id returning 1)
select count(*) as removed from gone
