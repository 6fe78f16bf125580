-- Returns the address of the node that stores the table $1, and whether it is the current node.
-- $1 table
select n.nodename::text as host, n.nodeport::int4 as port, n.groupid = (select g.groupid from pg_dist_local_group g) as is_here
from pg_dist_shard s
join pg_dist_placement p on p.shardid = s.shardid
join pg_dist_node n on n.groupid = p.groupid
where s.logicalrelid::oid = to_regclass($1)::oid and n.noderole = 'primary'
