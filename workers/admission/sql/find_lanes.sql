-- Which of the lanes with keys $1 (bytea[]) exist. Takes no lock: one that is pruned right after is missed by the lock.
select key from lanes where key = any($1::bytea[])
