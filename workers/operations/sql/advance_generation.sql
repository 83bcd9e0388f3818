-- Moves lane $1 (locked) to its next generation and returns it; work of the old one is stale from here on.
update lanes set generation = generation + 1 where id = $1 returning generation
