-- The lane of reservation $1. Takes no lock: a reservation never changes its lane.
select lane_id from reservations where id = $1
