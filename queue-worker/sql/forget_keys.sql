-- unique_key -> nothing: deletes keys that no job holds any more, among $1 keys from a random one on. Returns their number.
-- $1 number of keys to check
-- Safe: queue.forget_keys locks the keys first, then checks with newer snapshots whether their jobs hold them. A producer waits for the lock, and
-- then finds the key free.
select queue.forget_keys($1)
