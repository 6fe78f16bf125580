-- nothing | store -> store: adds the store $1, or reopens the closed store $1. Returns the name of the store.
-- $1 name  $2 database  $3 schema
-- Safe: if a store with a different database or schema has the name, nothing is changed, and no row is returned.
insert into queue.store as s (name, database, schema)
values ($1, $2, $3)
on conflict (name) do update
set is_open = true
where s.database = excluded.database and s.schema = excluded.schema
returning s.name
