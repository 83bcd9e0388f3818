-- Locks reservation $1, whose lane is locked. What became of its run is read by a later statement.
select id from reservations where id = $1 for update
