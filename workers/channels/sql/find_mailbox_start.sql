-- The cursor before the newest $4 rows of chat $3 (channel $1, account $2); 0 for an empty mailbox.
select coalesce(min(newest.id) - 1, 0) as cursor
  from (select m.id
          from mailbox m
         where m.channel = $1
           and m.account = $2
           and m.chat = $3
         order by m.id desc
         limit $4) newest
