-- Removes at most $1 notes that have expired.
delete from notes
 where (lane_id, generation, key) in (select lane_id, generation, key
                                        from notes
                                       where expires_at <= parley_now()
                                       order by expires_at
                                       limit $1)
