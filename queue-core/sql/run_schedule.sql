-- nothing -> ready | scheduled | blocked, fire: enqueues a job of the schedule $1 immediately, and returns the job's id.
-- $1 name
-- Safe: writes the rows of an enqueue and one row of fire. The schedule's ticks do not change.
select queue.run_schedule($1)
