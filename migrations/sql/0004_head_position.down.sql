alter table lanes drop column head_position;
