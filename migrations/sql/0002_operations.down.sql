alter table worker_sessions drop column agents;
drop table pauses;
