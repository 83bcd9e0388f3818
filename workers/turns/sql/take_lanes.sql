-- Takes ownership: lanes $1 (bigint[]) by runs $2 (uuid[]) for session $5 under a new epoch each, with the frozen
-- snapshots $3 and their digests $4 (bytea[], kept where the turn has one already). Returns lane and epoch.
with taken as (
    select * from unnest($1::bigint[], $2::uuid[], $3::bytea[], $4::bytea[]) as t (lane_id, run_id, snapshot, digest)
),
owned as (
    update lanes l
       set owner_run = taken.run_id, epoch = l.epoch + 1
      from taken
     where l.id = any($1::bigint[]) and l.id = taken.lane_id
    returning l.id, l.epoch, l.owner_run
),
running as (
    update runs r
       set status = 'running', epoch = owned.epoch, started_at = coalesce(r.started_at, parley_now())
      from owned
     where r.id = any($2::uuid[]) and r.id = owned.owner_run
),
turn as (
    insert into turns (lane_id, run_id, epoch, session_id, snapshot, snapshot_digest, claimed_at)
    select owned.id, owned.owner_run, owned.epoch, $5, taken.snapshot, taken.digest, parley_now()
      from owned join taken on taken.lane_id = owned.id
        on conflict (lane_id) do update
       set epoch = excluded.epoch, session_id = excluded.session_id, claimed_at = excluded.claimed_at
),
dequeued as (
    delete from ready where lane_id = any($1::bigint[])
)
select id as lane_id, epoch from owned
