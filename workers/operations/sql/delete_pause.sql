-- Resumes $1 (agent, channel or account) named $2, account $3. Returns a row where it was paused.
delete from pauses where kind = $1 and name = $2 and account = $3
returning paused_at
