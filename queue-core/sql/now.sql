-- The database's clock, by which all times of a store are.
-- Safe: it only reads.
select pg_catalog.now()
