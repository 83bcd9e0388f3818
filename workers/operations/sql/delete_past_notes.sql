-- Removes at most $1 notes that have expired; one that another transaction edits at this moment stays. The lock looks at the
-- note again, so that one which was renewed meanwhile is not removed.
delete from notes
 where ctid = any(array(
       select ctid
         from notes
        where expires_at <= parley_now()
        order by expires_at
        limit $1
          for update skip locked))
