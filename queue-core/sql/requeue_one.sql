-- dead | done | done_many -> ready | blocked: job $1.
-- Safe: see the function.
select queue.requeue($1)
