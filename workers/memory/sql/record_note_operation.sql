-- Records in lane $1 that run $2, at step $3 and call $4, did act $5 to the note $6, with receipt $7 (no body in it).
insert into note_operations (lane_id, run_id, step, call, act, key, receipt, created_at)
values ($1, $2, $3, $4, $5, $6, $7::text::jsonb, parley_now())
