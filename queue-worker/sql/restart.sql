-- lease -> ready | done (cancelled): restarts durable jobs. Returns the refused ones.
-- $1 tokens  $2 ids  $3 attempts  $4 for each, its type and version as stored  $5 its new payload as JSON text
-- Safe: queue.restart is two statements of one transaction, the second with a newer snapshot, fenced like a verdict. A second call after a lost
-- answer is refused.
select r.token, r.id
from queue.restart($1::uuid[], $2::bigint[], $3::smallint[]::integer[], $4::text[], $5::text[]) r
