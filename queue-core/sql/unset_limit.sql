-- Removes an operator's override of a limit. Returns false if there is no override.
-- $1 name
-- Safe: deletes one row. Changes of limits are serialized until commit.
select queue.unset_limit($1)
