-- ready | scheduled | blocked | parked -> done, cancelled, and lease, marked: cancels all jobs of the flow that the job $1 belongs to; returns
-- their number.
-- $1 id
-- Safe: as cancelling each of them; jobs that change their state meanwhile are visited again.
select queue.cancel_flow($1)
