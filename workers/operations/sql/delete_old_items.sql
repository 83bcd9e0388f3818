-- Removes, of each of the lanes $1 (bigint[], locked), those of its $3 oldest items that are older than $2 (interval); items of
-- an active turn stay.
delete from items
 using (select oldest.lane_id, oldest.generation, oldest.id
          from unnest($1::bigint[]) as asked (lane_id)
          join lanes on lanes.id = asked.lane_id
         cross join lateral (
               select i.lane_id, i.generation, i.id, i.run_id, i.created_at
                 from items i
                where i.lane_id = lanes.id
                order by i.lane_id, i.generation, i.id
                limit $3
               ) oldest
         where oldest.created_at < parley_now() - $2::interval and oldest.run_id is distinct from lanes.owner_run) doomed
 where (items.lane_id, items.generation, items.id) = (doomed.lane_id, doomed.generation, doomed.id)
