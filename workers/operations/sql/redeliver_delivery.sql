-- Delivery $1, if it is failed or unknown, is pending again under its key, and so are the later chunks of its reply
-- that failed with reason $2. The transcript waits for them. Returns the deliveries that moved, none where $1 may not.
with chosen as (
    select id, run_id, reply_key, chunk
      from deliveries
     where id = $1 and state in ('failed', 'unknown')
       for no key update
),
following as (
    select d.id
      from deliveries d
      join chosen c on c.run_id = d.run_id and c.reply_key = d.reply_key and d.chunk > c.chunk
     where d.state in ('failed', 'unknown') and d.reason = $2
     order by d.id
       for no key update of d
),
moved as (
    update deliveries d
       set state = 'pending', reason = null, failures = 0, finished_at = null, due_at = parley_now(),
           possible_duplicate = d.possible_duplicate or d.uncertain_since is not null
     where d.id in (select id from chosen union all select id from following)
    returning d.reply_key, d.lane_id, d.recalled
),
waiting as (
    update items i
       set status = 'pending'
     where i.kind = 'reply' and i.reply_key in (select reply_key from moved)
)
select reply_key, lane_id, recalled from moved
