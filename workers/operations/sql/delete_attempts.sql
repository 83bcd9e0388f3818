-- Removes the attempt logs of the deliveries $1 (uuid[], locked).
delete from delivery_attempts where delivery_id = any($1::uuid[])
