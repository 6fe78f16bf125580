-- Logs of handlers, for job types with `keep_logs`: one row of text for each attempt.
--
--   log   written by workers when an attempt ends; deleted by housekeeping after the job is deleted
--
-- Housekeeping deletes the logs separately, usually within about a minute after the job. Statements that settle, requeue or delete a job
-- therefore never wait for locks on the job's logs. The logs of a deleted job are hidden until housekeeping deletes them.

create table queue.log (
  id       bigint      not null,
  attempt  smallint    not null,
  at       timestamptz not null,  -- time at which the log was written
  cut      bigint      not null,  -- number of lines omitted from the middle
  text     text        not null,
  constraint log_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint log_pkey primary key (id, attempt),
  constraint log_is_bounded check (pg_catalog.octet_length(text) <= 1100000)
);

-- Writes logs in job order, and returns the number of written logs. A log is written only if the lease `token` holds its job. A null
-- token means that the attempt's own transaction has already ended the job, and requires only that the job exists. If an attempt was
-- released without being counted, the next attempt has the same number and overwrites the log. Waits at most 250 ms for each lock. If the
-- call fails, the caller drops the logs.
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

-- Checks up to `most` logs of jobs with ids above `after`, and deletes the logs of deleted jobs. Returns the id of the last checked job,
-- or null if no job is left. Skips rows locked by other sessions.
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

-- Returns the logs of the last twenty attempts of an existing job.
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
