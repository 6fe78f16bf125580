-- child -> child, told: the jobs $1, of which this transaction has ended some; returns how many were told of.
-- $1 ids
-- Safe: queue.tell_parents looks at what this transaction has written, so it says only what was accepted; it commits with that, or not at all.
select queue.tell_parents($1)
