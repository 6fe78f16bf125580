-- Gives the line of the fair key $2 of the job type $1 a weight of $3, or takes it away if that is null; see queue.set_weight.
-- $1 job type  $2 fair key  $3 weight, or null
-- Safe: one row, which claims read as it is.
select queue.set_weight($1, $2, $3)
