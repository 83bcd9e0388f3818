-- The lane of the conversation whose lane key is $1.
select c.lane_id
  from lanes l join conversations c on c.lane_id = l.id
 where l.key = $1
