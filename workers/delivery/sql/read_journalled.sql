-- The deliveries that stand under keys $1.
select key, address_id
  from deliveries
 where key = any($1::text[])
