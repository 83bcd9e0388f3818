drop table audit, mailbox, delivery_attempts, deliveries, send_holds, addresses, note_operations, notes, items, run_steps,
    reservations, turns, ready, runs, conversations, lanes, worker_sessions;
drop function parley_now();
