-- unique_key -> nothing: keys that no job holds any more, of up to $1 that are looked at, from a random one on; returns how many.
-- $1 how many are looked at
-- Safe: queue.forget_keys locks them first, and looks under newer snapshots whether their jobs hold them. A producer waits for the lock, and
-- then finds the key free.
select queue.forget_keys($1)
