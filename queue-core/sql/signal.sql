-- nothing -> signal: one to the job $1, in the caller's transaction; returns what came of it: sent, over or absent.
-- $1 id  $2 name  $3 payload as JSON text, or null for nothing
-- Safe: queue.signal writes nothing for a job that is over, and waits for nobody.
select queue.signal($1, $2, $3::text::jsonb)
