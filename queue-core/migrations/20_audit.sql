-- Audit log. The log records which role applied which operation to how many jobs, and when, if the program reports the operation (note_act); the
-- dashboard reports all of its operations. Keeps the last 10,000 operations. Only the functions in this file write the log, so that role and time
-- are reliable. The actor is reported by the program.

create sequence queue.audit_seq;
create function queue.next_note() returns bigint
  language sql volatile
  return pg_catalog.nextval('queue.audit_seq'::regclass);

create table queue.audit (
  id     bigint       not null default queue.next_note(),
  at     timestamptz  not null default now(),
  role   text         not null default session_user,
  actor  text         not null,
  act    text         not null,
  what   text         not null,
  jobs   bigint       not null,
  constraint audit_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint audit_pkey primary key (id),
  constraint audit_is_short check (length(actor) <= 100 and length(act) <= 40 and length(what) <= 500)
);

-- Records an operation in the operation's transaction, and returns the number of the record. Deletes the oldest records.
create function queue.note_act(actor text, act text, what text, jobs bigint) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  number bigint;
begin
  insert into queue.audit (actor, act, what, jobs)
  values (left(note_act.actor, 100), left(note_act.act, 40), left(note_act.what, 500), note_act.jobs)
  returning audit.id into number;
  if number > 10000 then
    begin
      delete from queue.audit a
      where a.id in (
        select o.id from queue.audit o where o.id <= number - 10000 order by o.id limit 100 for update skip locked
      );
    exception
      -- Under a strict isolation level, concurrent deletes raise an error, which must not fail the operation.
      when serialization_failure then
        null;
    end;
  end if;
  return number;
end
$$;

-- Adds `jobs` to the job count of a recorded operation, for operations that take several transactions. Only the role that recorded the operation
-- can do so.
create function queue.count_act(id bigint, jobs bigint) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.audit a
  set jobs = a.jobs + count_act.jobs
  where a.id = count_act.id and a.role = session_user;
end
$$;
