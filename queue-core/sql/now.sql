-- Returns the time of the database's clock, to which all times of a store refer.
-- Safe: read-only.
select pg_catalog.now()
