-- What has been sent to the job $1 and not been received, without payloads, in the order in which it came: the first thousand.
-- $1 id
-- Safe: reads only.
select s.name, s.at
from queue.signals($1) s
