-- unique_key -> nothing: checks $1 uniqueness keys, starting at a random one, and deletes the keys that no job holds any more. Returns the number
-- of deleted keys.
-- $1 number of keys to check
-- Safe: queue.forget_keys locks the keys first, then checks with newer snapshots whether a job holds them. A producer waits for the lock, and then
-- finds the key free.
select queue.forget_keys($1)
