-- Reserves ids for $1 jobs that the caller inserts with COPY, and returns the ids unordered.
-- $1 number of ids
-- Safe: an id is assigned only once, even if the transaction rolls back. generate_series is in a select list, because PostgreSQL
-- materializes the result of a function in a from clause.
select array(select queue.next_id() from (select pg_catalog.generate_series(1, $1::integer)) n)
