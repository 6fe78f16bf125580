-- ready | scheduled | blocked | parked -> done (cancelled): cancels all unfinished jobs of the flow that contains the job $1. Leased jobs
-- stay leased and are marked for cancellation. Returns the number of cancelled and marked jobs.
-- $1 id
-- Safe: equivalent to cancelling each job individually. The statement retries jobs whose state changes while it runs.
select queue.cancel_flow($1)
