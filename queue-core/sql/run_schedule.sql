-- nothing -> ready | scheduled | blocked, fire: a job of the schedule called $1, now; returns it.
-- Safe: as an enqueue; it changes no tick.
select queue.run_schedule($1)
