-- declaration -> schedule: puts the declarations of living workers in force, and withdraws schedules that no living worker declares. Returns the
-- changes.
-- Safe: each name is changed separately, and only if the definition in force is still the one that was read.
select e.name, e.became
from queue.elect_schedules() e
