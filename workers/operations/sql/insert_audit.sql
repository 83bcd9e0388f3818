-- Records that actor $1 did act $2 to subject $3; $4 is the detail (text of a JSON object).
insert into audit (at, actor, act, subject, detail)
values (parley_now(), $1, $2, $3, $4::jsonb)
