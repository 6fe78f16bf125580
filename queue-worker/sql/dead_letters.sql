-- The next $4 dead letters after the id $3, of the queue $1 and the job type $2 (null for any). Changes nothing: what is then done with them
-- is fenced by itself.
select d.id
from queue.dead d
where d.id > $3
  and ($1::text is null and $2::text is null
    or d.lane in (select l.lane from queue.lane l where ($1::text is null or l.queue = $1) and ($2::text is null or l.job_type = $2)))
order by d.id
limit $4
