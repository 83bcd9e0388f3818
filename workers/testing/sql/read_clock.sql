-- The time the clock shows.
select parley_now()
