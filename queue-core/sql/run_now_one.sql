-- scheduled -> ready: job $1.
-- Safe: see the function.
select queue.run_now($1)
