-- idle: writes one row per queue, which requests notifications from producers. The worker must commit this statement and then query for
-- jobs once more before it sleeps. A producer that does not see the row of its queue sends no notification, so only that query can find
-- its jobs.
-- $1 worker  $2 queues, or '*' for any
insert into queue.idle (queue, worker)
select q, $1
from unnest($2::text[]) q
on conflict do nothing
