-- Returns a row if the lease $1 contains the job $2.
-- $1 token  $2 id
-- Safe: waits for transactions that hold the lease's row lock, such as a commit whose response was lost, and sees their result.
select true
from queue.lease l
where l.token = $1 and $2::bigint = any (l.ids)
for share of l
