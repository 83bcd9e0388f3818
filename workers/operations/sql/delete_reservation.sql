-- Frees the identities of reservation $1 (locked): the next copy of its event is admitted anew.
delete from reservations where id = $1
