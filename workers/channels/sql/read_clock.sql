-- The database's time: what letters of several writers are ordered by on a page.
select parley_now()
