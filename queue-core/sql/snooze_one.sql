-- ready | scheduled -> scheduled: job $1, in $2 seconds.
-- Safe: see the function.
select queue.snooze($1, $2::float8 * interval '1 second')
