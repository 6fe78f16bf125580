-- Returns the signals that the job $1 has not received yet, in arrival order. Used in tests.
-- $1 job
-- Safe: read-only.
select s.seq, s.name, s.payload::text as payload
from queue.signal s
where s.id = $1
order by s.seq
