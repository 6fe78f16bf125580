-- Returns the first thousand signals that the job $1 has not received yet, without payloads, in the order of arrival.
-- $1 id
-- Safe: reads only.
select s.name, s.at
from queue.signals($1) s
