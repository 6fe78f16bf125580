-- Returns the first thousand maps of an existing job, with the number of finished parts by outcome. See queue.gathers.
-- $1 id of the job
-- Safe: read-only.
select g.name, g.total, g.need, g.completed, g.dead, g.cancelled, g.most
from queue.gathers($1) g
