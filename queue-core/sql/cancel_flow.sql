-- ready | scheduled | blocked | parked -> done, cancelled, and lease, marked: all jobs of the flow that the job $1 belongs to; returns how many.
-- $1 id
-- Safe: as cancelling each of them; what passes from one state to another meanwhile is looked at again.
select queue.cancel_flow($1)
