-- Notifies workers that sleep and serve one of the queues $1, as an enqueue would.
select queue.wake(q)
from unnest($1::text[]) q
