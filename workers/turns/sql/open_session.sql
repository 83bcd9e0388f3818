-- Opens the worker session %(id)s of %(worker)s, which claims runs of %(agents)s, for %(lease)s seconds. Repeated after an
-- answer that was lost, it changes nothing.
insert into worker_sessions (id, worker, started_at, lease_until, agents)
values (%(id)s, %(worker)s, parley_now(), parley_now() + make_interval(secs => %(lease)s), %(agents)s::text[])
    on conflict (id) do nothing
