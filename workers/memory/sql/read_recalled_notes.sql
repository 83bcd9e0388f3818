-- The live notes of each lane in $1 (generation in $2), most recently updated first, at most 100 a lane.
select lane.id as lane_id, note.key, note.body, note.updated_at
  from unnest($1::bigint[], $2::integer[]) as lane (id, generation)
 cross join lateral (
        select n.key, n.body, n.updated_at
          from notes n
         where n.lane_id = lane.id
           and n.generation = lane.generation
           and (n.expires_at is null or n.expires_at > parley_now())
         order by n.updated_at desc, n.key
         limit 100) note
 order by lane.id, note.updated_at desc, note.key
