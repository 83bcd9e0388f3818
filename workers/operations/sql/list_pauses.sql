-- Everything that is paused, in the order in which it was.
select kind, name, account, paused_at, actor, reason from pauses order by paused_at, kind, name, account
