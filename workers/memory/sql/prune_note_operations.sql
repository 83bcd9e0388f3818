-- Deletes at most $2 receipts older than $1 whose run is over; those of open runs stay.
delete from note_operations
 where (run_id, step, call) in (
        select o.run_id, o.step, o.call
          from note_operations o
          left join runs r on r.id = o.run_id
         where o.created_at < parley_now() - $1::interval
           and (r.id is null or r.finished_at is not null)
         order by o.created_at
         limit $2)
