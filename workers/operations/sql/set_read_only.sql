-- First statement of a transaction that may only look.
set transaction read only
