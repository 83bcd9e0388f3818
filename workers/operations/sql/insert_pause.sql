-- Pauses $1 (agent, channel or account) named $2, account $3 ('' unless an account), for actor $4 and reason $5. Returns
-- a row where it was not paused before.
insert into pauses (kind, name, account, actor, reason, paused_at)
values ($1, $2, $3, $4, $5, parley_now())
    on conflict do nothing
returning paused_at
