-- Returns the first thousand signals that the job $1 has not received yet, without payloads, in the order of their arrival.
-- $1 id
-- Safe: read-only.
select s.name, s.at
from queue.signals($1) s
