-- Ends the sessions named $1 whose server waits, in the middle of a transaction and of a statement, for more than $2 (interval)
-- for the next message of its client. The driver prepares a statement without a Sync, so a process that is stopped right
-- after it leaves a transaction that is not idle: no time-out of the server would end it, nor free its locks. Returns pids.
-- They are chosen first, since conditions of one statement are tried in any order.
with stopped as materialized (
    select pid
      from pg_stat_activity
     where datname = current_database() and usename = current_user and application_name = $1 and pid <> pg_backend_pid()
       and state = 'active' and wait_event = 'ClientRead'
       and xact_start is not null and state_change < clock_timestamp() - $2::interval
)
select pid from stopped where pg_terminate_backend(pid)
