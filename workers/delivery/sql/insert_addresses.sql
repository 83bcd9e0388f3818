-- Makes the addresses ($1 channels, $2 accounts, $3 addresses) that are missing; the caller sorts them, so that two
-- batches meet the same ones in the same order. Existing addresses are neither locked nor written.
insert into addresses (channel, account, address)
select w.channel, w.account, w.address
  from unnest($1::text[], $2::text[], $3::text[]) with ordinality as w (channel, account, address, n)
 where not exists (select
                     from addresses a
                    where (a.channel, a.account, a.address) = (w.channel, w.account, w.address))
 order by w.n
    on conflict (channel, account, address) do nothing
