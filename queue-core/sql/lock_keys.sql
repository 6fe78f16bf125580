-- Locks the ordering keys ($1 queue, $2 key)[n] until the end of the transaction, in one order for all; or all there are, if $3.
-- $1 queues  $2 keys, null for none  $3 whether all
-- Safe: a transaction that locks all of its keys at once, in this order, and no more afterwards, waits for none that waits for it.
select queue.lock_key(s.stripe)
from (
  select distinct queue.key_id(k.queue, k.key) & 1023 as stripe  -- redundant: each once [ distinct] (for speed: the union does it again)
  from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) k (queue, key)
  -- redundant: a key that is null is none [ and k.key is not null] (for the reader: a lock on null is none)
  where not $3::boolean and k.key is not null
  union
  -- guard: all there are [$3 => $3 and false]; no more than asked for [ where $3]
  select n from pg_catalog.generate_series(0::bigint, 1023) n where $3
  order by 1  -- guard: in one order
) s
