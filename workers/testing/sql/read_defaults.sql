-- The columns whose default is the server's time.
select table_name as relation, column_name as name
  from information_schema.columns
 where table_schema = 'public' and column_default = 'now()'
