-- nothing | store -> store: adds a store of this name, or opens it again.
-- $1 name  $2 database  $3 schema
-- Safe: a name used by another store remains that store's, and no row is returned.
insert into queue.store as s (name, database, schema)
values ($1, $2, $3)
on conflict (name) do update
set is_open = true
where s.database = excluded.database and s.schema = excluded.schema
returning s.name
