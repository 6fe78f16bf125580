-- ready | scheduled -> scheduled: those of the jobs $1 that wait and that nobody holds, at $2 or, if that is null, $3 ms from now; returns them.
-- $1 ids  $2 time  $3 wait in ms
-- Safe: see the function.
select c.id
from queue.reschedule_all($1, coalesce($2::timestamptz, pg_catalog.clock_timestamp() + $3::float8 * interval '1 millisecond')) c (id)
