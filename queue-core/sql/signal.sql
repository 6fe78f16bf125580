-- nothing -> signal: sends a signal to the job $1, in the caller's transaction. Returns the outcome: sent, over (the job has finished) or
-- absent (the job does not exist).
-- $1 id  $2 name  $3 payload as JSON text, or null for none
-- Safe: queue.signal writes nothing for a finished job, and never waits for a lock.
select queue.signal($1, $2, $3::text::jsonb)
