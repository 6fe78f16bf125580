-- gather -> gather, closed, and the step that has spawned it. Null if it was refused, false if it has another number of parts.
-- $1 token  $2 parent  $3 attempt  $4 the step  $5 how many parts
-- Safe: fenced as a step is; said twice, because an answer was lost, it changes nothing the second time.
select queue.close_gather($1, $2, $3, $4, $5)
