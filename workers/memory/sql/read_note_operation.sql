-- The receipt of the note operation that run $1 did at step $2, call $3, if it did one.
select act, key, receipt::text as receipt
  from note_operations
 where run_id = $1
   and step = $2
   and call = $3
