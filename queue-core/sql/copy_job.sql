-- nothing -> ready | scheduled, first half: payloads under ids from reserve_ids. Takes no parameters; rows follow in binary.
-- Safe: in one transaction with copy_ready and copy_scheduled, which write the entries of these jobs.
copy queue.job (id, lane, max_attempts, payload) from stdin with (format binary)
