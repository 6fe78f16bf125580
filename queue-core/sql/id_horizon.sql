-- Returns an id that is higher than all ids generated so far. Jobs enqueued more than two milliseconds later have higher ids. Both are
-- true only while the database clock is not set back.
select queue.id_at(pg_catalog.clock_timestamp() + interval '1 millisecond')
