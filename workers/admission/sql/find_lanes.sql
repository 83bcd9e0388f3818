-- Which of the lanes with keys $1 (bytea[]) exist. Takes no lock: a lane is never removed while it is in use.
select key from lanes where key = any($1::bytea[])
