-- The lane of reservation $1. Takes no lock: only healing moves a reservation to another lane, and then it has an open run.
select lane_id from reservations where id = $1
