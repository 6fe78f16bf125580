-- Sets a limit, which overrides the limit declared in code.
-- $1 name  $2 concurrency or null  $3 starts or null  $4 period in ms or null  $5 burst or null  $6 reason or null
-- $7 whether the values apply to each key separately, or null to keep the current mode
-- Safe: writes a row of bound and, if missing, a row of limiter. Only one transaction at a time can change limits, so changes become visible
-- in revision order.
select queue.set_limit($1, $2, $3, $4::bigint * interval '1 millisecond', $5, $6, $7)
