-- What operators need beside the engine: pauses. Every statement is an expansion: workers of the version before go on
-- working on this schema.

-- What an operator has paused: an agent, a whole channel (account = '') or one account of it.
create table pauses (
    kind      text        not null check (kind in ('agent', 'channel', 'account')),
    name      text        not null,
    account   text        not null default '',
    actor     text        not null,
    reason    text,
    paused_at timestamptz not null default now(),
    primary key (kind, name, account),
    check ((kind = 'account') = (account <> ''))
);

-- Which agents a worker may claim runs of; null for a worker that does not say.
alter table worker_sessions add column agents text[];
