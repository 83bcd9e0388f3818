-- Journals deliveries $1 (JSON rows) as pending in the order given, so that positions follow it, and each recalled reply as one item of the
-- transcript that holds all its chunks. A known key changes nothing, and a delivery whose address is not there yet, or was
-- not used for a week, is left out with its item. Returns what was inserted.
with wanted as (
    select *
      from rows from (json_to_recordset($1::json) as (
               id uuid, key text, reply_key text, chunk integer, run_id uuid, lane_id bigint, generation integer,
               agent text, recalled boolean, channel text, account text, address text, traceparent text, text text))
           with ordinality as w (id, key, reply_key, chunk, run_id, lane_id, generation, agent, recalled,
                                 channel, account, address, traceparent, text, n)
),
journalled as (
    insert into deliveries (id, key, reply_key, chunk, run_id, lane_id, agent, recalled, address_id, channel, account,
                            traceparent, body, due_at, created_at)
    select w.id, w.key, w.reply_key, w.chunk, w.run_id, w.lane_id, w.agent, w.recalled, a.id, w.channel, w.account,
           w.traceparent, convert_to(w.text, 'UTF8'), parley_now(), parley_now()
      from wanted w
      join addresses a
        on (a.channel, a.account, a.address) = (w.channel, w.account, w.address)
       and a.used_on > parley_now()::date - 7
     order by w.n
        on conflict (key) do nothing
    returning key, reply_key, address_id
),
remembered as (
    insert into items (lane_id, generation, kind, status, run_id, reply_key, body, body_bytes, created_at)
    select w.lane_id, w.generation, 'reply', 'pending', w.run_id, w.reply_key,
           string_agg(w.text, '' order by w.chunk), sum(octet_length(w.text)), parley_now()
      from wanted w
     where w.recalled and w.reply_key in (select reply_key from journalled)
     group by w.lane_id, w.generation, w.run_id, w.reply_key
     order by min(w.n)
        on conflict (reply_key) where kind = 'reply' do nothing
)
select key, address_id from journalled
