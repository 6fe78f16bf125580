-- ready | scheduled -> scheduled: job $1, at $2.
-- Safe: see the function.
select queue.reschedule($1, $2)
