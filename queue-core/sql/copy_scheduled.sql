-- nothing -> scheduled, second half: the entries of jobs copied to run later. Takes no parameters; rows follow in binary.
-- Safe: in one transaction with copy_job.
copy queue.scheduled (run_at, id, lane) from stdin with (format binary)
