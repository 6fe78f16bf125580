-- Returns the tables of the schema $1 with their shards, and the views, which have no shard. If the schema is not distributed, returns
-- only the views.
-- $1 schema
select c.relname::text as name, s.shardid as shard, case when c.relkind = 'v' then pg_get_viewdef(c.oid) end as definition,
  array(select k.conname::text from pg_constraint k where k.conrelid = c.oid and k.contype = any ('{p,u}')) as constraints
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_dist_shard s on s.logicalrelid = c.oid
where n.nspname = $1 and (c.relkind = 'v' or s.shardid is not null)
order by c.oid
