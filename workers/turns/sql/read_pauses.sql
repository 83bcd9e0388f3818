-- Everything that is paused.
select kind, name, account from pauses
