-- Of replies $1, where an earlier chunk failed for good, the pending later chunks fail with reason $2; one that may
-- have arrived before becomes unknown. Returns their ids.
with open as (
    select d.id
      from deliveries d
     where d.run_id in (select split_part(asked.reply_key, ':', 1)::uuid from unnest($1::text[]) as asked (reply_key))
       and d.reply_key = any($1::text[]) and d.state = 'pending'
       and exists (select
                     from deliveries earlier
                    where earlier.run_id = d.run_id and earlier.reply_key = d.reply_key
                      and earlier.chunk < d.chunk and earlier.state = 'failed')
     order by d.id
       for no key update
)
update deliveries d
   set state = case when d.uncertain_since is null then 'failed' else 'unknown' end,
       reason = $2, finished_at = parley_now()
  from open
 where d.id = open.id
returning d.id, d.channel, d.state
