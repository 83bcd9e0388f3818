-- What is under way or due now for agents $1 and channels $2 (text[]): turns, lanes that could be claimed, and deliveries
-- that are being sent, or could be sent or looked up. What waits for a later time, for a person or for a pause is not due.
select exists (select
                 from turns t
                 join runs r on r.id = t.run_id
                where t.session_id is not null and r.status <> 'waiting' and r.agent = any($1::text[])) as turns,
       exists (select from ready where agent = any($1::text[]) and due_at <= parley_now()) as runs,
       exists (select
                 from deliveries d
                 join addresses a on a.id = d.address_id
                where d.finished_at is null and d.channel = any($2::text[])
                  and (d.state = 'sending'
                       or d.due_at <= parley_now()
                          and (d.state = 'uncertain'
                               or (a.not_before is null or a.not_before <= parley_now())
                                  and not exists (select
                                                    from send_holds h
                                                   where h.channel = d.channel and h.account in (d.account, '')
                                                     and h.until > parley_now())
                                  and not exists (select
                                                    from deliveries earlier
                                                   where earlier.address_id = d.address_id
                                                     and earlier.finished_at is null
                                                     and earlier.position < d.position)))) as deliveries
