-- At most $1 sends whose session is dead, ended or gone, whose run was cancelled, or that were claimed longer than $2
-- ago become uncertain; reason $3 unless cancelled. Counts as a failed try. A session that is dead stays dead, so
-- it needs no lock here; a claim that committed after the marking is found by the next run.
with abandoned as (
    select d.id
      from deliveries d
      left join worker_sessions s on s.id = d.session_id
     where d.state = 'sending'
       and (s.id is null or s.dead_at is not null or s.ended_at is not null
            or d.reason = 'cancelled' or d.claimed_at <= parley_now() - $2::interval)
     order by d.id
     limit $1
       for no key update of d skip locked
)
update deliveries d
   set state = 'uncertain', reason = case when d.reason = 'cancelled' then d.reason else $3 end,
       uncertain_since = coalesce(d.uncertain_since, parley_now()), failures = d.failures + 1,
       due_at = parley_now()
  from abandoned
 where d.id = abandoned.id
returning d.id, d.run_id, d.reason
