-- end_hint: writes hints for jobs that this transaction has ended.
-- $1 ids  $2 state in which all these jobs ended; null to read the state of each job and to skip unfinished jobs
-- Safe: the statement only inserts, so it waits for no row lock. The hints are committed together with the changes that ended the jobs.
select queue.add_end_hints($1, $2)
