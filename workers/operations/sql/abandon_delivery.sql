-- Delivery $1 fails with reason $2, if it is pending, uncertain or unknown; the pending later chunks of its reply fail
-- with reason $3. Returns the deliveries that moved.
with chosen as (
    select id, run_id, reply_key, chunk
      from deliveries
     where id = $1 and state in ('pending', 'uncertain', 'unknown')
       for no key update
),
following as (
    select d.id
      from deliveries d
      join chosen c on c.run_id = d.run_id and c.reply_key = d.reply_key and d.chunk > c.chunk
     where d.state = 'pending'
     order by d.id
       for no key update of d
)
update deliveries d
   set state = 'failed', reason = case when d.id = $1 then $2 else $3 end, finished_at = parley_now()
 where d.id in (select id from chosen union all select id from following)
returning d.reply_key, d.lane_id, d.recalled
