-- Sets the weight of the fairness key $2 in the job type $1 to $3, or removes the weight if $3 is null. See queue.set_weight.
-- $1 job type  $2 fairness key  $3 weight or null
-- Safe: writes one row, which claims read without locking it.
select queue.set_weight($1, $2, $3)
