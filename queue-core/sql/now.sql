-- Returns the current time of the database clock, which determines all times in a store.
-- Safe: read-only.
select pg_catalog.now()
