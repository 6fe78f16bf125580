-- ready | scheduled -> the same in the lane of priority $2: job $1.
-- Safe: see the function.
select queue.set_priority($1, $2::int)
