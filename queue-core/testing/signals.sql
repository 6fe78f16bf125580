-- signal, read: the signals sent to the job $1, in the order of their arrival. In a test.
-- $1 job
-- Safe: reads only.
select s.seq, s.name, s.payload::text as payload
from queue.signal s
where s.id = $1
order by s.seq
