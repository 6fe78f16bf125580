-- idle: requests notifications from producers. The worker must commit this statement before its last query for jobs.
-- $1 worker  $2 queues, or '*' for any
insert into queue.idle (queue, worker)
select q, $1
from unnest($2::text[]) q
on conflict do nothing
