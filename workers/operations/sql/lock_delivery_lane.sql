-- Locks the lane of delivery $1; no row where there is no such delivery.
select l.id
  from deliveries d
  join lanes l on l.id = d.lane_id
 where d.id = $1
   for no key update of l
