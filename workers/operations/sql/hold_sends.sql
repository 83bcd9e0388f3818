-- Nothing is sent for channel $1 and account $2 ('' for the whole channel) until it is resumed.
insert into send_holds (channel, account, until, reason)
values ($1, $2, 'infinity', 'paused')
    on conflict (channel, account) do update set until = 'infinity', reason = excluded.reason
