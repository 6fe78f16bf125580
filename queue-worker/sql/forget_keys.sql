-- unique_key -> nothing: checks $1 uniqueness keys, starting at a random key, and deletes keys that no job holds. Returns the number of
-- deleted keys.
-- $1 number of keys to check
-- Safe: queue.forget_keys first locks the keys, then checks with newer snapshots whether each key is held. A producer that waits for the
-- lock on a deleted key finds the key free.
select queue.forget_keys($1)
