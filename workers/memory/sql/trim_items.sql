-- Deletes, for each lane in $1 (generation in $2), at most 100 items that stand beyond the newest $3, oldest first,
-- and of the 20 oldest those older than $4; items of the lane's active turn stay. The caller holds the lanes.
delete from items
 using (select lane.id as lane_id, lane.generation, doomed.id
          from unnest($1::bigint[], $2::integer[]) as lane (id, generation)
          join lanes on lanes.id = lane.id
          left join lateral (
                select i.id
                  from items i
                 where i.lane_id = lane.id
                   and i.generation = lane.generation
                 order by i.id desc
                offset $3
                 limit 1) newest_surplus on true
         cross join lateral (
                (select i.id, i.run_id
                   from items i
                  where i.lane_id = lane.id
                    and i.generation = lane.generation
                    and i.id <= newest_surplus.id
                  order by i.id
                  limit 100)
                union
                (select oldest.id, oldest.run_id
                   from (select i.id, i.run_id, i.created_at
                           from items i
                          where i.lane_id = lane.id
                            and i.generation = lane.generation
                          order by i.id
                          limit 20) oldest
                  where oldest.created_at <= parley_now() - $4::interval)) doomed
         where doomed.run_id is distinct from lanes.owner_run) surplus
 where items.lane_id = surplus.lane_id and items.generation = surplus.generation and items.id = surplus.id
