-- Deletes, for each lane in $1 (generation in $2), at most 200 items that are older than $4 or stand beyond the
-- newest $3; items of the lane's active turn stay. The caller holds the lanes.
delete from items
 using (select surplus.id
          from unnest($1::bigint[], $2::integer[]) as lane (id, generation)
          join lanes on lanes.id = lane.id
         cross join lateral (
                (select i.id, i.run_id
                   from items i
                  where i.lane_id = lane.id
                    and i.generation = lane.generation
                  order by i.id desc
                 offset $3
                  limit 100)
                union
                (select oldest.id, oldest.run_id
                   from (select i.id, i.run_id, i.created_at
                           from items i
                          where i.lane_id = lane.id
                            and i.generation = lane.generation
                          order by i.id
                          limit 100) oldest
                  where oldest.created_at <= parley_now() - $4::interval)) surplus
         where surplus.run_id is distinct from lanes.owner_run) doomed
 where items.id = doomed.id
