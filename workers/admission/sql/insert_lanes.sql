-- Makes the lanes with keys $1 (bytea[], distinct and sorted) of kinds $2, and the conversations behind those of kind
-- 'conversation': memory key $3, channel $4, account $5, chat $6, audience $7 (text[], null for other kinds).
-- A lane that another transaction makes at the same moment is waited for and left alone.
with asked as (
    select *
      from unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        as a (key, kind, memory_key, channel, account, chat, audience)
),
made as (
    insert into lanes (key, kind)
    select key, kind from asked order by key
        on conflict (key) do nothing
    returning id, key, kind
)
insert into conversations (lane_id, memory_key, channel, account, chat, audience)
select made.id, asked.memory_key, asked.channel, asked.account, asked.chat, asked.audience
  from made join asked using (key)
 where made.kind = 'conversation'
