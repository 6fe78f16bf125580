-- declaration -> schedule: puts the declarations of live workers in force. Withdraws a schedule once no live worker has declared it for
-- the longest TTL of the live workers. Returns the name and the outcome of each affected schedule.
-- Safe: each schedule is changed separately, and only if its definition is unchanged since it was read.
select e.name, e.became
from queue.elect_schedules() e
