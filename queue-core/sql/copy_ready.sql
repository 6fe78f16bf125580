-- nothing -> ready, second half: the entries of jobs copied to run now, with their ids as seq. Takes no parameters; rows follow in binary.
-- Safe: in one transaction with copy_job.
copy queue.ready (lane, seq, id) from stdin with (format binary)
