-- lease, looked at: those of the leases $1 that another transaction has locked, and whose session that is, if one alone has it.
-- $1 tokens
-- Safe: it waits for nobody, and keeps no lock. Asked only after a statement had to wait for one of them for too long.
with free as materialized (
  select l.token
  from queue.lease l
  where l.token = any ($1)
  for update skip locked
)
select l.token, a.pid, a.usename::text as role, a.application_name as application
from queue.lease l
left join pg_stat_activity a on a.backend_xid = l.xmax
where l.token = any ($1) and not exists (select from free f where f.token = l.token)
