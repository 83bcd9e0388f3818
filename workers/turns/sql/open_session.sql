-- Opens the worker session %(id)s of %(worker)s for %(lease)s seconds.
insert into worker_sessions (id, worker, started_at, lease_until)
values (%(id)s, %(worker)s, parley_now(), parley_now() + make_interval(secs => %(lease)s))
