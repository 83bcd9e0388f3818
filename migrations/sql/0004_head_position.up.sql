-- No run of the lane before this position is open. Settlement moves it behind the run that it ends; it is a lower bound, so a
-- worker of an older version need not know it. Whoever looks for a lane's head begins here, and reads no dead version of
-- the runs before, of which an old snapshot keeps one a turn.
alter table lanes add column head_position bigint not null default 1;
