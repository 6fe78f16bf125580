-- job, looked at: the payloads of the jobs $1 that have at most $2 bytes; of others that they are there.
-- $1 ids  $2 how many bytes
-- Safe: it only reads. Whoever asks holds the jobs.
select j.id, case when octet_length(j.payload) <= $2 then j.payload end as payload
from (select j.id, j.payload::text as payload from queue.job j where j.id = any ($1) offset 0) j
