-- dead -> nothing: job $1.
-- Safe: see the function.
select queue.discard($1)
