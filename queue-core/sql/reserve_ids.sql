-- Ids for $1 jobs to be copied, in no order.
-- $1 how many
-- Safe: an id is given out once, whatever becomes of the transaction. A series in a select list is not stored before it is read.
select array(select queue.next_id() from (select pg_catalog.generate_series(1, $1::integer)) n)
