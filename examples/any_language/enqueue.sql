-- psql -qAt "$DATABASE_URL" -f examples/any_language/enqueue.sql
\set ON_ERROR_STOP on
create temporary table guest (name text);

-- The job is part of your transaction: rolled back, it never was.
begin;
insert into guest values ('nobody');
select queue.enqueue('greet', '{"name": "nobody"}') as id \gset
rollback;
select 'rolled back: ' || count(*) || ' jobs' from queue.status(:id);

-- Committed, it runs.
begin;
insert into guest values ('ada');
select queue.enqueue('greet', '{"name": "ada"}') as id \gset
commit;

-- What came of it. No row if it is not over after 10 s.
select state || ': ' || (output #>> '{}') from queue.wait(:id, '10 s');

-- One for tomorrow; options have names.
select queue.enqueue('greet', '{"name": "bob"}', '{"after": "1 day"}') as id \gset
select state from queue.status(:id);
select 'over in 50 ms: ' || count(*) from queue.wait(:id, '50 ms');
select queue.cancel(:id);
select state from queue.status(:id);

-- What a job's state does not allow is an error that names the state.
\set ON_ERROR_STOP off
select queue.cancel(:id);
\echo refused: :SQLSTATE
