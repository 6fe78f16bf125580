-- lease, looked at: whether the lease $1 lists the job $2.
-- $1 token  $2 id
-- Safe: waits for whoever is at work on the lease, be it a commit whose answer was lost, and sees what that left.
select true
from queue.lease l
where l.token = $1 and $2::bigint = any (l.ids)
for share of l
