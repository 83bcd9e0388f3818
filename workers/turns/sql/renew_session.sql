-- Renews the lease of session %(id)s however late, unless a takeover marked it dead; no row means lost.
update worker_sessions
   set lease_until = parley_now() + make_interval(secs => %(lease)s)
 where id = %(id)s and dead_at is null and ended_at is null
returning id
