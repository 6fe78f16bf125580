-- Enqueues jobs with psql, waits for a result, and cancels a job.
-- psql -qAt "$DATABASE_URL" -f examples/any_language/enqueue.sql
\set ON_ERROR_STOP on
create temporary table guest (name text);

-- The job is part of your transaction: after a rollback it does not exist.
begin;
insert into guest values ('nobody');
select queue.enqueue('greet', '{"name": "nobody"}') as id \gset
rollback;
select 'rolled back: ' || count(*) || ' jobs' from queue.status(:id);

-- After the commit it runs.
begin;
insert into guest values ('ada');
select queue.enqueue('greet', '{"name": "ada"}') as id \gset
commit;

-- Wait up to 10 s for the result of the job. No row is returned if the job has not finished by then.
select state || ': ' || (output #>> '{}') from queue.wait(:id, '10 s');

-- Enqueue a job that starts in one day. The third argument contains the options.
select queue.enqueue('greet', '{"name": "bob"}', '{"after": "1 day"}') as id \gset
select state from queue.status(:id);
select 'over in 50 ms: ' || count(*) from queue.wait(:id, '50 ms');
select queue.cancel(:id);
select state from queue.status(:id);

-- The job is already cancelled. A second cancellation therefore fails with an error that names the job's state.
\set ON_ERROR_STOP off
select queue.cancel(:id);
\echo refused: :SQLSTATE
