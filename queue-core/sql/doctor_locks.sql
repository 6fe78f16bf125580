-- Finds sessions that hold or await a lock that blocks writes to the store's tables, such as the lock that `create index` takes. Returns
-- one row per session, up to twenty.
-- Safe: read-only, and never waits for a lock.
select 'table_locked' as kind,
  format('session %s (%s) holds or awaits a lock on %s', s.session ->> 'pid', s.session ->> 'application', l.tables) as message,
  case when s.session ? 'prepared' then format('rollback prepared %L', s.session ->> 'prepared')
    else format('select pg_terminate_backend(%s)', s.session ->> 'pid') end as fix,
  jsonb_build_object('tables', w.shut -> 'tables') || s.session as facts
from (select queue.why_table_locked('{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}') as shut) w
cross join lateral (select string_agg(t.name, ', ') as tables from jsonb_array_elements_text(w.shut -> 'tables') t (name)) l
cross join lateral jsonb_array_elements(w.shut -> 'sessions') s (session)
limit 20
