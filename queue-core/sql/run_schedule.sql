-- nothing -> ready | scheduled | blocked, fire: enqueues a job of the schedule $1 immediately; returns it.
-- Safe: as an enqueue; it changes no tick.
select queue.run_schedule($1)
