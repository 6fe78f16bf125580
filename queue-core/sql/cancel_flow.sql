-- ready | scheduled | blocked | parked -> done (cancelled): cancels all unfinished jobs of the flow that contains the job $1. Leased jobs
-- stay leased and are marked for cancellation. Returns the number of cancelled and marked jobs.
-- $1 id
-- Safe: equivalent to cancelling each job individually. If the state of a job changes while the statement runs, the statement tries to
-- cancel the job again, for up to half a second.
select queue.cancel_flow($1)
