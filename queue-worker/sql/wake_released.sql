-- Notifies workers that sleep and serve the queues of the lanes $1: jobs came back there, to their old places, which lie below the floors.
-- $1 lanes
select queue.wake(k.queue)
from (select distinct l.queue from queue.lane l where l.lane = any ($1)) k
