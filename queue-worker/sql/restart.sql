-- lease -> ready | done (cancelled): restarts durable jobs. Returns the token and id of each rejected job.
-- $1 tokens  $2 ids  $3 attempts  $4 type and version of each job as stored  $5 new payload of each job as JSON text
-- Safe: fenced like a verdict. queue.restart runs two statements in one transaction, the second with a newer snapshot. A second call
-- after a lost response is rejected.
select r.token, r.id
from queue.restart($1::uuid[], $2::bigint[], $3::smallint[]::integer[], $4::text[], $5::text[]) r
