-- Makes the addresses ($1 channels, $2 accounts, $3 addresses) that are missing, and notes of the others that they are in use
-- today; the caller sorts them, so that two batches meet the same ones in the same order. An address that was used today is
-- neither locked nor written.
insert into addresses (channel, account, address, used_on)
select w.channel, w.account, w.address, parley_now()::date
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality as w (channel, account, address, n)
 where not exists (select
                     from addresses a
                    where (a.channel, a.account, a.address) = (w.channel, w.account, w.address)
                      and a.used_on >= parley_now()::date)
 order by w.n
    on conflict (channel, account, address) do update set used_on = excluded.used_on
