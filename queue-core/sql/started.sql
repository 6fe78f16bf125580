-- Returns an id above all ids that were generated so far, by the database's clock. After two milliseconds all new jobs have higher ids.
select queue.id_at(pg_catalog.clock_timestamp() + interval '1 millisecond')
