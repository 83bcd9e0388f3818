-- The clock stands at the time it shows now.
update test_clock set stands_at = parley_now() where stands_at is null
