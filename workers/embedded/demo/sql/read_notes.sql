-- The notes that the agent keeps.
select key, body from notes order by key
