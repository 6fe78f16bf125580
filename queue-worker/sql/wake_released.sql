-- Wakes sleeping workers that serve the queues of the lanes $1, to which jobs were released. The released jobs keep their old places, which are
-- below the floors.
-- $1 lanes
select queue.wake(k.queue)
from (select distinct l.queue from queue.lane l where l.lane = any ($1)) k
