-- Removes at most $2 waits of channels and accounts that were over more than $1 (interval) ago.
delete from send_holds
 where (channel, account) in (select channel, account
                                from send_holds
                               where until < parley_now() - $1::interval
                               order by channel, account
                               limit $2)
