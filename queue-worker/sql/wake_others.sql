-- Notifies sleeping workers that serve one of the queues $1, as an enqueue does.
select queue.wake(q)
from unnest($1::text[]) q
