-- Deletes the expired notes of the scope ($1 lane, $2 generation), but for those that a sweep removes at this moment.
delete from notes
 where ctid = any(array(
       select ctid
         from notes
        where lane_id = $1
          and generation = $2
          and expires_at <= parley_now()
          for update skip locked))
