-- Every run of the demo, in the order of admission.
select id, event_id, status, reason, crashes, attempts, finished_at is not null as ended from runs order by position
