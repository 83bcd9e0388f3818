-- The engine's tables: lanes (what is serialized), reservations, runs, turns, steps, deliveries, and the records of
-- conversation memory. Ids that leave the database are UUIDv7 made by the worker; the rest are identities.
--
-- Every index and foreign key is paid for at each turn. Rows whose writer holds the lane they point at (ready, turns) carry no
-- foreign key to it; records that outlive a turn (runs, steps, deliveries, items, notes) do. Ids grow with time, so retention
-- walks primary keys.

-- The one clock that SQL reads. Tests replace it with a shifted one; the planner inlines it.
create function parley_now() returns timestamptz language sql stable parallel safe as 'select now()';

create table worker_sessions (
    id          uuid primary key,
    worker      text        not null,
    started_at  timestamptz not null default now(),
    lease_until timestamptz not null,
    dead_at     timestamptz,
    ended_at    timestamptz
);
create index worker_sessions_alive on worker_sessions (lease_until) where ended_at is null;

-- A lane is what runs are serialized by: a conversation, a given concurrency key, or the run itself.
-- The row is narrow and none of its changing columns is indexed, so that claim and settlement update it in place.
create table lanes (
    id            bigint generated always as identity primary key,
    key           bytea   not null unique,
    kind          text    not null check (kind in ('conversation', 'key', 'run')),
    generation    integer not null default 0,
    next_position bigint  not null default 1,
    epoch         bigint  not null default 0,
    owner_run     uuid
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create table conversations (
    lane_id    bigint primary key references lanes (id),
    memory_key text        not null,
    channel    text        not null,
    account    text        not null,
    chat       text        not null,
    audience   text        not null,
    created_at timestamptz not null default now(),
    deleted_at timestamptz
);

create table runs (
    id                  uuid primary key,
    lane_id             bigint      not null references lanes (id),
    generation          integer     not null,
    position            bigint      not null,
    agent               text        not null,
    memory_key          text,
    channel             text        not null,
    account             text        not null,
    event_id            text        not null,
    status              text        not null default 'queued'
                        check (status in ('queued', 'running', 'waiting', 'interrupted',
                                          'succeeded', 'failed', 'cancelled', 'joined', 'rejected')),
    reason              text,
    epoch               bigint      not null default 0,
    retries             integer     not null default 0,
    crashes             integer     not null default 0,
    attempts            integer     not null default 0,
    due_at              timestamptz not null default now(),
    cancel_requested_at timestamptz,
    traceparent         text,
    usage               jsonb,
    admitted_at         timestamptz not null default now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    event               bytea       not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create unique index runs_open on runs (lane_id, position) where finished_at is null;

-- One row for each lane whose head run may be claimed from due_at on; apart from the lane so that lanes stay narrow.
create table ready (
    lane_id bigint      primary key,
    agent   text        not null,
    account text        not null,
    due_at  timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index ready_rotation on ready (agent, account, due_at, lane_id);

-- The active turns: who owns a lane, and the frozen snapshot. session_id is null while a turn is released or waiting.
create table turns (
    lane_id         bigint      primary key,
    run_id          uuid        not null,
    epoch           bigint      not null,
    session_id      uuid,
    snapshot        bytea,
    snapshot_digest bytea,
    claimed_at      timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index turns_session on turns (session_id);

create table reservations (
    id           bigint generated always as identity primary key,
    agent        text        not null,
    channel      text        not null,
    account      text        not null,
    event_id     text        not null,
    message_id   text,
    payload_hash bytea       not null,
    hash_version smallint    not null,
    run_id       uuid        not null,
    lane_id      bigint      not null,
    generation   integer     not null,
    outcome      text,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null,
    constraint reservations_event unique (agent, channel, account, event_id)
) with (fillfactor = 85);
create unique index reservations_message on reservations (agent, channel, account, message_id)
    where message_id is not null;
create index reservations_run on reservations (run_id);
-- Reservations are made in the order in which they expire, so block ranges tell enough.
create index reservations_expiry on reservations using brin (expires_at);

create table run_steps (
    run_id        uuid        not null references runs (id) on delete cascade,
    step          integer     not null,
    call          integer     not null,
    kind          text        not null check (kind in ('model', 'tool', 'step', 'emit')),
    name          text        not null,
    args_digest   bytea       not null,
    agent_version text        not null,
    state         text        not null check (state in ('started', 'finished')),
    result        bytea,
    epoch         bigint      not null,
    started_at    timestamptz not null default now(),
    finished_at   timestamptz,
    primary key (run_id, step, call)
);

create table items (
    id         bigint generated always as identity,
    lane_id    bigint      not null references conversations (lane_id),
    generation integer     not null,
    kind       text        not null check (kind in ('input', 'reply')),
    status     text        not null check (status in ('accepted', 'withheld', 'pending', 'sent', 'unknown', 'failed')),
    run_id     uuid        not null,
    event_id   text,
    reply_key  text,
    body       text,
    body_bytes integer     not null,
    created_at timestamptz not null default now(),
    primary key (lane_id, generation, id)
) with (fillfactor = 85);
create unique index items_input on items (lane_id, generation, event_id) where kind = 'input';
create unique index items_reply on items (reply_key) where kind = 'reply';

create table notes (
    lane_id    bigint      not null references conversations (lane_id),
    generation integer     not null,
    key        text        not null,
    body       text        not null,
    body_bytes integer     not null,
    expires_at timestamptz,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (lane_id, generation, key)
);

create table note_operations (
    lane_id    bigint      not null references conversations (lane_id),
    run_id     uuid        not null,
    step       integer     not null,
    call       integer     not null,
    act        text        not null check (act in ('set', 'remove')),
    key        text        not null,
    receipt    jsonb       not null,
    created_at timestamptz not null default now(),
    primary key (run_id, step, call)
);
-- A conversation that is deleted takes its receipts along.
create index note_operations_lane on note_operations (lane_id);

create table addresses (
    id         bigint generated always as identity primary key,
    channel    text not null,
    account    text not null,
    address    text not null,
    not_before timestamptz,
    unique (channel, account, address)
) with (fillfactor = 80);

-- A wait that a channel asked for, for a whole account or (account = '') a whole channel.
create table send_holds (
    channel    text        not null,
    account    text        not null,
    until      timestamptz not null,
    reason     text        not null,
    primary key (channel, account)
);

create table deliveries (
    id              uuid        primary key,
    position        bigint      generated always as identity,
    key             text        not null unique,
    reply_key       text        not null,
    chunk           integer     not null default 0,
    run_id          uuid        not null references runs (id),
    lane_id         bigint      not null,
    agent           text        not null,
    recalled        boolean     not null,
    address_id      bigint      not null references addresses (id),
    channel         text        not null,
    account         text        not null,
    state           text        not null default 'pending'
                    check (state in ('pending', 'sending', 'sent', 'failed', 'uncertain', 'unknown')),
    reason          text,
    attempt         integer     not null default 0,
    failures        integer     not null default 0,
    session_id      uuid,
    due_at          timestamptz not null default now(),
    created_at      timestamptz not null default now(),
    first_sent_at   timestamptz,
    claimed_at      timestamptz,
    uncertain_since timestamptz,
    finished_at     timestamptz,
    provider_id     text,
    possible_duplicate boolean  not null default false,
    traceparent     text,
    body            bytea       not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index deliveries_head on deliveries (address_id, position) where finished_at is null;
create index deliveries_lane on deliveries (lane_id) where finished_at is null;
create index deliveries_uncertain on deliveries (due_at) where state = 'uncertain';
create unique index deliveries_one_sending on deliveries (address_id) where state = 'sending';
create index deliveries_run on deliveries (run_id);
create index deliveries_unknown on deliveries (finished_at) where state = 'unknown';

create table delivery_attempts (
    id          bigint generated always as identity,
    delivery_id uuid        not null,
    attempt     integer     not null,
    session_id  uuid,
    kind        text        not null check (kind in ('send', 'look_up', 'operator')),
    outcome     text        not null,
    detail      text,
    provider_id text,
    late        boolean     not null default false,
    started_at  timestamptz,
    recorded_at timestamptz not null default now(),
    primary key (delivery_id, id)
);

create table mailbox (
    id           bigint generated always as identity primary key,
    channel      text        not null,
    account      text        not null,
    chat         text        not null,
    key          text        not null unique,
    direction    text        not null check (direction in ('in', 'out')),
    body         text        not null,
    created_at   timestamptz not null default now()
);
create index mailbox_reading on mailbox (channel, account, chat, id);

create table audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default now(),
    actor   text        not null,
    act     text        not null,
    subject text        not null,
    detail  jsonb       not null default '{}'
);
create index audit_at on audit (at);
