-- Nothing goes out for channels $1 and accounts $2 ('' for a whole channel) for the waits $3 with reasons $4; a longer
-- wait stays.
insert into send_holds (channel, account, until, reason)
select channel, account, parley_now() + max(wait), min(reason)
  from unnest($1::text[], $2::text[], $3::interval[], $4::text[]) as w (channel, account, wait, reason)
 group by channel, account
 order by channel, account
    on conflict (channel, account) do update
   set until = greatest(send_holds.until, excluded.until), reason = excluded.reason
