-- Which of the runs $1 (uuid[]) an operator, the API or an interrupt asked to cancel.
select id from runs where id = any($1::uuid[]) and cancel_requested_at is not null
