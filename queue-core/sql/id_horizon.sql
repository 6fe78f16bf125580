-- Returns an id above all ids generated so far, by the database clock. Jobs enqueued more than two milliseconds later have higher ids.
select queue.id_at(pg_catalog.clock_timestamp() + interval '1 millisecond')
