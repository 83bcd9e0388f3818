-- Removes the ended runs among $1 (uuid[]).
delete from runs where id = any($1::uuid[]) and finished_at is not null
