-- idle: asks producers to wake this worker. To be committed before the last look for jobs.
-- $1 worker  $2 queues, or '*' for any
insert into queue.idle (queue, worker)
select q, $1
from unnest($2::text[]) q
on conflict do nothing
