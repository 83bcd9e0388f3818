-- How much is paused, by kind.
select kind, count(*) as paused from pauses group by kind
