-- Sets the note $3 of the scope ($1 lane, $2 generation) to the body $4 of $5 bytes, to expire after $6 (null: never).
-- Returns whether it is new and its times. The caller holds the lane and has deleted expired notes.
insert into notes as note (lane_id, generation, key, body, body_bytes, expires_at, created_at, updated_at)
values ($1, $2, $3, $4, $5, parley_now() + $6::interval, parley_now(), parley_now())
    on conflict (lane_id, generation, key) do update
   set body = excluded.body,
       body_bytes = excluded.body_bytes,
       expires_at = excluded.expires_at,
       updated_at = excluded.updated_at
returning xmax = 0 as created, updated_at, expires_at
