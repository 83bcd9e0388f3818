-- Retention: who sweeps, and what lets rows go in bounded batches. Every statement is an expansion.

-- Work that one process does at a time, by name; `finished_at` is when a whole round of it was last done.
create table leases (
    name        text        primary key,
    holder      uuid        not null,
    until       timestamptz not null,
    finished_at timestamptz
);

-- The day on which an address was last written to, to within a week: an address in use is not written for every reply.
alter table addresses add column used_on date not null default current_date;

-- What points at a lane or an address is found by time, not by an index of its own, so the check at a removal would read
-- the whole table. Admission holds the lane of a run that it makes; a delivery is made under an address that was used
-- within a week, and those are not removed.
alter table runs drop constraint runs_lane_id_fkey;
alter table deliveries drop constraint deliveries_address_id_fkey;

create index notes_expiry on notes (expires_at) where expires_at is not null;
