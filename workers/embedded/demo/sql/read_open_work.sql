-- Whether the event $1 has a run (under its own id, or one made from it), and what is not final yet.
select exists (select from runs where starts_with(event_id, $1)) as admitted,
       (select count(*) from runs where finished_at is null) as runs,
       (select count(*) from deliveries where finished_at is null) as deliveries
