-- For each chat of $3 (channel $1, account $2) the next rows after the cursor at the same place in $4, at most
-- $5 a chat. Returns reader (its place in $3, from 1), id, key, direction, body, created_at; in order of id.
select asked.reader, row.id, row.key, row.direction, row.body, row.created_at
  from unnest($3::text[], $4::bigint[]) with ordinality as asked (chat, after, reader)
 cross join lateral (
       select m.id, m.key, m.direction, m.body, m.created_at
         from mailbox m
        where m.channel = $1
          and m.account = $2
          and m.chat = asked.chat
          and m.id > asked.after
        order by m.id
        limit $5) row
 order by row.id
