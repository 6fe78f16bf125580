-- Ids for $1 jobs to be copied, ascending.
-- $1 how many
-- Safe: an id is given out once, whatever becomes of the transaction.
select array(select queue.next_id() from pg_catalog.generate_series(1, $1::integer) order by 1)
