-- Of the next $2 conversations after lane $1: removes items older than $3 (interval, null: of any age) and those beyond the newest
-- $4 of their generation (null: any number), oldest first, at most $6 of a conversation and $5 in all. What belongs to an active
-- turn or is held by another transaction stays. No lane is locked: what is old or surplus once stays so, and an old item's
-- run owns its lane since the item was made or not at all. One row: how many conversations were looked at, the last of
-- them, how many items are gone, and whether a bound was met, so that there may be more.
with page as materialized (
    select c.lane_id, l.generation, l.owner_run
      from conversations c
      join lanes l on l.id = c.lane_id
     where c.lane_id > $1
     order by c.lane_id
     limit $2
),
doomed as materialized (
    (select page.lane_id, oldest.generation, oldest.id
       from page
      cross join lateral (
            select i.generation, i.id, i.run_id, i.created_at
              from items i
             where i.lane_id = page.lane_id
             order by i.lane_id, i.generation, i.id
             limit $6) oldest
      where oldest.created_at <= parley_now() - $3::interval
        and oldest.run_id is distinct from page.owner_run)
    union all
    (select page.lane_id, kept.generation, surplus.id
       from page
      cross join lateral generate_series(0, page.generation) as kept (generation)
      cross join lateral (
            select i.id, i.run_id
              from items i
             where i.lane_id = page.lane_id
               and i.generation = kept.generation
               and i.id <= (select newest.id
                              from items newest
                             where newest.lane_id = page.lane_id
                               and newest.generation = kept.generation
                             order by newest.id desc
                            offset $4
                             limit 1)
             order by i.id
             limit $6) surplus
      where $4::integer is not null
        and surplus.run_id is distinct from page.owner_run)
    limit $5
),
gone as (
    delete from items
     where ctid = any(array(
           select i.ctid
             from doomed
             join items i on (i.lane_id, i.generation, i.id) = (doomed.lane_id, doomed.generation, doomed.id)
              for update of i skip locked))
    returning 1
)
select (select count(*) from page) as looked,
       (select max(lane_id) from page) as last,
       (select count(*) from gone) as gone,
       coalesce((select count(*) from doomed) >= $5
                or exists (select from doomed group by lane_id, generation having count(*) >= $6), false) as more
