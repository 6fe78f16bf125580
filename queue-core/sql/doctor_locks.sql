-- Who has tables of the store to itself, or lets no other write to them, as `create index` does: a row for each session.
-- Safe: it only reads, and waits for nobody.
select 'table_locked' as kind,
  format('session %s (%s) has %s locked, or waits for that', s.session ->> 'pid', s.session ->> 'application', l.tables) as says,
  case when s.session ? 'prepared' then format('rollback prepared %L', s.session ->> 'prepared')
    else format('select pg_terminate_backend(%s)', s.session ->> 'pid') end as fix,
  jsonb_build_object('tables', w.shut -> 'tables') || s.session as facts
from (select queue.why_shut('{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}') as shut) w
cross join lateral (select string_agg(t.name, ', ') as tables from jsonb_array_elements_text(w.shut -> 'tables') t (name)) l
cross join lateral jsonb_array_elements(w.shut -> 'sessions') s (session)
limit 20
