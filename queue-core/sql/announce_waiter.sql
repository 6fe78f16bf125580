-- nothing | waiter -> waiter: the process $1 waits for jobs, for another minute.
-- $1 waiter
-- Safe: its own row. Whoever ends a job asks for these rows after its commit, and we look at our jobs after ours: either it sees the row, or we see
-- that the job is over.
insert into queue.waiter (id, expires_at)
values ($1, pg_catalog.now() + interval '1 minute')  -- guard: for a minute [ + interval '1 minute']
on conflict (id) do update set expires_at = excluded.expires_at  -- guard: renewed [update set expires_at = excluded.expires_at => nothing]
