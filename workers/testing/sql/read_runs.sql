-- Every run in the order of admission.
select id, agent, event_id, status, reason, crashes, attempts, retries from runs order by admitted_at, id
