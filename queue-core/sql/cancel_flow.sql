-- ready | scheduled | blocked | parked -> done, cancelled, and lease, marked: cancels all jobs of the flow that contains the job $1. Returns the
-- number of cancelled jobs.
-- $1 id
-- Safe: like a cancellation of each single job. Jobs that change their state meanwhile are visited again.
select queue.cancel_flow($1)
