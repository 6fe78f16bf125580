-- What handlers log, of job types that ask for it (`keep_logs`): one row an attempt, as text.
--
--   log   written by workers when an attempt ends, deleted with its job by housekeeping
--
-- Nothing else waits for these rows: no settle, no operator's act. So a job may be gone a minute before its logs are, and then nobody is shown them.

create table queue.log (
  id       bigint      not null,
  attempt  smallint    not null,
  at       timestamptz not null,  -- when it was written
  cut      bigint      not null,  -- how many lines of the middle are left out
  text     text        not null,
  constraint log_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint log_pkey primary key (id, attempt),
  constraint log_is_bounded check (pg_catalog.octet_length(text) <= 1100000)
);

-- Writes logs, in the order of their jobs: each under the lease that has its job, or without a token if the attempt's own transaction has ended it.
-- Of an attempt that was given back uncharged, the next one of its number writes over it. Returns how many were written. It waits for no lock for
-- long: whoever is refused drops what it has.
create function queue.write_logs(tokens uuid[], ids bigint[], attempts integer[], cuts bigint[], texts text[]) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  written bigint;
begin
  insert into queue.log (id, attempt, at, cut, text)
  select s.id, s.attempt::smallint, clock_timestamp(), s.cut, s.text
  from unnest(write_logs.tokens, write_logs.ids, write_logs.attempts, write_logs.cuts, write_logs.texts) s (token, id, attempt, cut, text)
  where
    exists (select from queue.lease h where h.token = s.token and s.id = any (h.ids))
    or s.token is null and exists (select from queue.job j where j.id = s.id)
  order by s.id, s.attempt
  on conflict on constraint log_pkey do update
  set at = excluded.at, cut = excluded.cut, text = excluded.text;
  get diagnostics written = row_count;
  return written;
end
$$;

-- Looks through the next `most` logs after this one and deletes those whose job is gone; returns the last that it looked at, or null at the end.
-- Rows that others hold are passed over.
create function queue.prune_logs(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last bigint;
begin
  select max(p.id) into last
  from (select l.id from queue.log l where l.id > prune_logs.after order by l.id limit prune_logs.most) p;
  delete from queue.log l
  where (l.id, l.attempt) in (
    select o.id, o.attempt
    from queue.log o
    where o.id > prune_logs.after and o.id <= last
      and not exists (select from queue.job j where j.id = o.id)
    for update of o skip locked
  );
  return last;
end
$$;

-- What the last twenty attempts of a job have logged, of a job that is there.
create function queue.logs(job bigint)
  returns table (attempt smallint, at timestamptz, cut bigint, text text)
  language sql stable
begin atomic
  select n.attempt, n.at, n.cut, n.text
  from (
    select l.attempt, l.at, l.cut, l.text
    from queue.log l
    where l.id = logs.job
      and exists (select from queue.job j where j.id = logs.job)
    order by l.attempt desc
    limit 20
  ) n
  order by n.attempt;
end;
