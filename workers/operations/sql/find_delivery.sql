-- Where delivery $1 stands.
select key, state, attempt
  from deliveries
 where id = $1
