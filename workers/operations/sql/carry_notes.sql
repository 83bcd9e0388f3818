-- Takes the notes of lane $1 (locked) over into generation $2, the one after theirs.
update notes set generation = $2 where lane_id = $1 and generation = $2 - 1
