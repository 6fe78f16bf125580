-- nothing -> ready | scheduled | blocked, fire: enqueues a job of the schedule $1 immediately, and returns the job.
-- $1 name
-- Safe: like an enqueue. No tick is changed.
select queue.run_schedule($1)
