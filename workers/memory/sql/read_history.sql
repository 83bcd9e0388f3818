-- The newest transcript items of each lane in $1 (generation in $2, event left out in $3), at most $4 that can be
-- recalled, none older than $5, and the open replies between them, without body. A body larger than $6 bytes is not
-- read. Newest first within a lane. Scans at most four times $4 items a lane.
select lane.id as lane_id, item.id, item.kind, item.text, item.body_bytes, item.created_at
  from unnest($1::bigint[], $2::integer[], $3::text[]) as lane (id, generation, event_id)
 cross join lateral (
        select ranked.*
          from (select newest.id, newest.kind, newest.text, newest.body_bytes, newest.created_at,
                       count(newest.text) over (order by newest.id desc) as recalled
                  from (select i.id, i.kind, i.body_bytes, i.created_at,
                               case when i.status in ('accepted', 'sent') and i.body_bytes <= $6 then i.body end as text
                          from items i
                         where i.lane_id = lane.id
                           and i.generation = lane.generation
                           and i.status in ('accepted', 'sent', 'pending', 'unknown')
                           and i.event_id is distinct from lane.event_id
                           and i.created_at > parley_now() - $5::interval
                         order by i.id desc
                         limit 4 * $4::integer) newest) ranked
         where ranked.recalled <= $4) item
 order by lane.id, item.id desc
