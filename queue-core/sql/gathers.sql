-- The gathers of a job that is there: what steps have mapped, and how many parts are over.
-- $1 the job
select g.name, g.total, g.need, g.completed, g.dead, g.cancelled, g.most
from queue.gathers($1) g
