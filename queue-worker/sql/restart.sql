-- lease -> ready | done, cancelled: durable jobs that begin anew, many at once; returns those that were refused.
-- $1 tokens  $2 ids  $3 attempts  $4 of each, its type and version as stored  $5 its payload from now on, as JSON text
-- Safe: queue.restart is two statements of one transaction, the second with a newer snapshot, fenced as a verdict is; said twice, the second is
-- refused.
select r.token, r.id
from queue.restart($1::uuid[], $2::bigint[], $3::smallint[]::integer[], $4::text[], $5::text[]) r
