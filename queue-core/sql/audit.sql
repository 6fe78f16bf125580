-- The last acts that were noted, the newest first.
-- $1 below this number  $2 how many at most
-- Safe: it only reads.
select a.id, a.at, a.role, a.actor, a.act, a.what, a.jobs
from queue.audit a
where a.id < $1
order by a.id desc
limit $2
