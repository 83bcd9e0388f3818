-- Removes those of the next $3 mailbox rows after row $1 that are older than $2 (interval). Returns the last row looked at, how
-- many were looked at and how many went. Ids grow with time.
with looked as (
    select id, created_at < parley_now() - $2::interval as old
      from mailbox
     where id > $1
     order by id
     limit $3
),
gone as (delete from mailbox m using looked where m.id = looked.id and looked.old returning m.id)
select max(id) as last, count(*) filter (where old) as old, (select count(*) from gone) as gone from looked
