-- What waits: due and running runs, open deliveries, and how long the oldest of each has waited.
select (select count(*) from ready where due_at <= parley_now()) as lanes_due,
       (select parley_now() - min(due_at) from ready where due_at <= parley_now()) as oldest_due,
       (select count(*) from turns where session_id is not null) as turns_running,
       (select count(*) from deliveries where finished_at is null) as deliveries_open,
       (select parley_now() - min(due_at) from deliveries where finished_at is null and due_at <= parley_now())
           as oldest_delivery
