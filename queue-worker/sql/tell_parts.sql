-- gather_part -> nothing: the jobs $1, all of which this transaction has completed; each gather has a hint. Returns how many were parts.
-- $1 ids
-- Safe: only who deletes the row of a part counts it, so that said twice it counts once; it commits with what has completed them, or not at all.
select queue.tell_parts($1, 'completed')
