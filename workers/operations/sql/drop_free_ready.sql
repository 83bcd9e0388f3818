-- Takes the lanes $1 (bigint[], locked) that nobody owns out of the ready queue, so that their new head can enter it.
delete from ready
 using lanes l
 where l.id = any($1::bigint[]) and l.owner_run is null and ready.lane_id = l.id
