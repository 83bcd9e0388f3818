-- Removes the deliveries $1 (uuid[], locked).
delete from deliveries where id = any($1::uuid[])
