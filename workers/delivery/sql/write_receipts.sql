-- The receipts $1 (JSON rows) of sends and look-ups. A receipt counts only where id, attempt, session and state
-- still match (a send of a cancelled run never does); the others are written to the attempt log alone, as late.
-- Returns n (1-based place among the rows) and late. Locks deliveries in id order.
with given as (
    select *
      from rows from (json_to_recordset($1::json) as (
               id uuid, attempt integer, session_id uuid, from_state text, state text, reason text, wait interval,
               failures integer, provider_id text, clears boolean, possible_duplicate boolean, kind text, outcome text,
               detail text, started_at timestamptz))
           with ordinality as g (id, attempt, session_id, from_state, state, reason, wait,
                                 failures, provider_id, clears, possible_duplicate, kind, outcome, detail,
                                 started_at, n)
),
locked as (
    select d.id, g.n
      from deliveries d
      join given g
        on g.id = d.id and g.attempt = d.attempt and g.session_id = d.session_id and g.from_state = d.state
     where d.state = 'uncertain' or d.reason is distinct from 'cancelled'
     order by d.id
       for no key update of d
),
moved as (
    update deliveries d
       set state = g.state,
           reason = case when g.state <> 'sent' then coalesce(g.reason, d.reason) end,
           due_at = parley_now() + g.wait,
           failures = d.failures + g.failures,
           uncertain_since = case when g.clears then null
                                  when g.state = 'uncertain' then coalesce(d.uncertain_since, parley_now())
                                  else d.uncertain_since end,
           possible_duplicate = d.possible_duplicate or g.possible_duplicate,
           provider_id = coalesce(g.provider_id, d.provider_id),
           finished_at = case when g.state in ('sent', 'failed', 'unknown') then parley_now() end
      from locked
      join given g on g.n = locked.n
     where d.id = locked.id
    returning g.n
),
logged as (
    insert into delivery_attempts (delivery_id, attempt, session_id, kind, outcome, detail, provider_id, late, started_at,
                                   recorded_at)
    select g.id, g.attempt, g.session_id, g.kind, g.outcome, g.detail, g.provider_id, moved.n is null, g.started_at,
           parley_now()
      from given g
      left join moved on moved.n = g.n
     order by g.n
)
select given.n, moved.n is null as late
  from given
  left join moved on moved.n = given.n
