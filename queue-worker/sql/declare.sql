-- declaration, worker: declares schedules for the worker $1. Returns the declarations that are rejected or delayed.
-- $1 worker  $2 names  $3 job types  $4 payloads as JSON texts  $5 options as JSON texts
-- Safe: writes the worker's own row, and declarations that are the same for every worker that writes them.
select d.name, d.became
from queue.declare_schedules($1, $2, $3, $4, $5) d
