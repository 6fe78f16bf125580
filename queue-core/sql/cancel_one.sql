-- ready | scheduled -> done, cancelled; a running job is marked in its lease: job $1. Says which.
-- Safe: see the function.
select queue.cancel($1)
