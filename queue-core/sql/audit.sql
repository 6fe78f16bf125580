-- Returns the latest audit entries, newest first.
-- $1 exclusive upper bound of the entry numbers  $2 maximum number of entries
-- Safe: read-only.
select a.id, a.at, a.role, a.actor, a.act, a.what, a.jobs
from queue.audit a
where a.id < $1
order by a.id desc
limit $2
