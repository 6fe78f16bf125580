-- The lowest id that nobody has been given yet, by the database's clock: what is enqueued from now on lies above it.
select queue.id_at(pg_catalog.clock_timestamp())
