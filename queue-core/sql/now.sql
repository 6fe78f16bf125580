-- Returns the time of the database's clock, which all times of a store use.
-- Safe: reads only.
select pg_catalog.now()
