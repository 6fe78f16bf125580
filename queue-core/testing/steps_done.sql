-- step, looked at: what earlier attempts of the job $1 have finished, in that order, and in how many ms those end that sleep.
-- $1 id
-- Safe: reads only. Whoever reads has the job's lease, and those who had it before can write no more.
select s.name, s.attempt, s.output::text as output, (extract(epoch from s.until - clock_timestamp()) * 1000)::float8 as left_ms
from queue.step s
where s.id = $1
order by s.at, s.name
