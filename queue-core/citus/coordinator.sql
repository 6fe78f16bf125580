-- Returns the address of the Citus coordinator, and whether the current node is the coordinator. The coordinator creates and drops
-- tables.
select n.nodename::text as host, n.nodeport::int4 as port, n.groupid = (select g.groupid from pg_dist_local_group g) as is_here
from pg_dist_node n
where n.groupid = 0 and n.noderole = 'primary'
