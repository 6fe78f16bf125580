-- declaration, worker: declares schedules for the worker $1. Returns the name and outcome of each rejected declaration, and of each
-- declaration that the worker must repeat later.
-- $1 worker  $2 names  $3 job types  $4 payloads as JSON texts  $5 options as JSON texts
-- Safe: writes the worker's own row and its declarations. Workers with the same declaration write identical rows.
select d.name, d.became
from queue.declare_schedules($1, $2, $3, $4, $5) d
