-- What is not final yet: runs (approvals that wait are nobody's work) and deliveries.
select (select count(*) from runs where finished_at is null and status <> 'waiting') as runs,
       (select count(*) from deliveries where finished_at is null) as deliveries
