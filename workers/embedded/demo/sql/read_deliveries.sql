-- Every delivery with what became of each attempt to send it, in order.
select d.key, d.state, d.attempt,
       array(select a.outcome || coalesce(': ' || a.detail, '')
               from delivery_attempts a
              where a.delivery_id = d.id
              order by a.id) as outcomes
  from deliveries d
 order by d.position
