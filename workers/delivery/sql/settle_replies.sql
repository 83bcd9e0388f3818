-- The transcript follows the deliveries: of replies $1, those whose chunks are all final become sent (all chunks
-- sent), unknown (some chunk unknown, none failed) or failed. A reply's key begins with its run.
with settled as (
    select reply_key,
           case when bool_and(state = 'sent') then 'sent'
                when bool_or(state = 'failed') then 'failed'
                else 'unknown' end as status
      from deliveries
     where run_id in (select split_part(asked.reply_key, ':', 1)::uuid from unnest($1::text[]) as asked (reply_key))
       and reply_key = any($1::text[])
     group by reply_key
    having bool_and(finished_at is not null)
)
update items i
   set status = settled.status
  from settled
 where i.kind = 'reply' and i.reply_key = settled.reply_key and i.status <> settled.status
