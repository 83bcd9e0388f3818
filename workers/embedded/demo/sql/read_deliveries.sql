-- Every delivery: how often it was sent, and what became of it step by step.
select d.key, d.state,
       (select count(*) from delivery_attempts a where a.delivery_id = d.id and a.kind = 'send') as sends,
       array(select a.outcome || coalesce(': ' || a.detail, '')
               from delivery_attempts a
              where a.delivery_id = d.id
              order by a.id) as outcomes
  from deliveries d
 order by d.position
