-- Notifies sleeping workers that serve one of the queues $1, as an enqueue does.
-- $1 queues
select queue.wake(q)
from unnest($1::text[]) q
