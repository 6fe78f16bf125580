-- Returns the signals sent to the job $1, in the order of their arrival. Used in tests.
-- $1 job
-- Safe: read-only.
select s.seq, s.name, s.payload::text as payload
from queue.signal s
where s.id = $1
order by s.seq
