-- Reserves ids for $1 jobs to be copied, and returns the ids unordered.
-- $1 number of ids
-- Safe: an id is assigned only once, even if the transaction rolls back. A series in a select list is not materialized before it is read.
select array(select queue.next_id() from (select pg_catalog.generate_series(1, $1::integer)) n)
