-- Deletes, for each lane in $1 (generation in $2), at most 400 items that stand beyond the newest $3, oldest first,
-- and of the 100 oldest those older than $4; items of the lane's active turn stay. The caller holds the lanes.
-- By row address, so that a plan made while the table was small never walks it when it has grown; an item that another
-- transaction moves or holds at the same moment is left for the next time.
delete from items
 where ctid = any(array(
       select held.ctid
         from items held
        where held.ctid = any(array(
              select doomed.ctid
                from unnest($1::bigint[], $2::integer[]) as lane (id, generation)
                join lanes on lanes.id = lane.id
               cross join lateral (
                     (select i.ctid, i.run_id
                        from items i
                       where i.lane_id = lane.id
                         and i.generation = lane.generation
                         and i.id <= (select newest.id
                                        from items newest
                                       where newest.lane_id = lane.id
                                         and newest.generation = lane.generation
                                       order by newest.id desc
                                      offset $3
                                       limit 1)
                       order by i.id
                       limit 400)
                     union
                     (select oldest.ctid, oldest.run_id
                        from (select i.ctid, i.run_id, i.created_at
                                from items i
                               where i.lane_id = lane.id
                                 and i.generation = lane.generation
                               order by i.id
                               limit 100) oldest
                       where oldest.created_at <= parley_now() - $4::interval)) doomed
               where doomed.run_id is distinct from lanes.owner_run))
          for update skip locked))
