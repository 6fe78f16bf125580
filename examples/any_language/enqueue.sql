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

-- Its result. No row if it has not finished after 10 s.
select state || ': ' || (output #>> '{}') from queue.wait(:id, '10 s');

-- A job for tomorrow; options have names.
select queue.enqueue('greet', '{"name": "bob"}', '{"after": "1 day"}') as id \gset
select state from queue.status(:id);
select 'over in 50 ms: ' || count(*) from queue.wait(:id, '50 ms');
select queue.cancel(:id);
select state from queue.status(:id);

-- An operation that the job's state does not allow is an error that names the state.
\set ON_ERROR_STOP off
select queue.cancel(:id);
\echo refused: :SQLSTATE
