-- nothing | store -> store: a store of this name is there, and open.
-- $1 name  $2 database  $3 schema
-- Safe: a name that is another store's stays that one's, and nothing is returned.
insert into queue.store as s (name, database, schema)
values ($1, $2, $3)
on conflict (name) do update
set is_open = true
where s.database = excluded.database and s.schema = excluded.schema
returning s.name
