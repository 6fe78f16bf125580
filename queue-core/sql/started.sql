-- An id that lies above all that were given out so far, by the database's clock: within two milliseconds all that is enqueued lies above it.
select queue.id_at(pg_catalog.clock_timestamp() + interval '1 millisecond')
