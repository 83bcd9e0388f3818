-- Runs in all, and what is not final yet.
select (select count(*) from runs) as admitted,
       (select count(*) from runs where finished_at is null) as runs,
       (select count(*) from deliveries where finished_at is null) as deliveries
