-- One message for chat $3 of channel $1, account $2: key $4, direction $5, body $6, said at $7 (null: now). A known
-- key changes nothing. The lock is by chat and lasts to the commit, so that ids of one chat become visible in their
-- order and a reader's cursor never passes a row that is still on its way.
with chat as materialized (
    select pg_advisory_xact_lock(hashtextextended(concat_ws('|', 'mailbox', $1::text, $2::text, $3::text), 0))
)
insert into mailbox (channel, account, chat, key, direction, body, created_at)
select $1, $2, $3, $4, $5, $6, coalesce($7::timestamptz, parley_now())
  from chat
    on conflict (key) do nothing
