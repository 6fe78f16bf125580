-- Notifies sleeping workers that serve the queues of the lanes $1, after jobs were released to these lanes. A probe does not find the
-- released jobs, because their positions are their ids, which are below the workers' floors.
-- $1 lanes
select queue.wake(k.queue)
from (select distinct l.queue from queue.lane l where l.lane = any ($1)) k
