-- declaration -> schedule: puts in force what living workers declare, withdraws what none does; returns what changed.
-- Safe: each name by itself, and only over what was in force when that was looked at.
select e.name, e.became
from queue.elect_schedules() e
