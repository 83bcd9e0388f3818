-- Locks those of the lanes $1 (bigint[]) that nobody else holds at this moment.
select id from lanes where id = any($1::bigint[]) order by id for no key update skip locked
