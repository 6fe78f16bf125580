-- Audit log. Each row records that a role applied an operation to a number of jobs. Programs report their operations through
-- record_operation, and the dashboard reports all of its operations. The log keeps the last 10,000 operations. Only the functions in this
-- file write the log, so role and time are reliable. The actor is a name that the program reports, and is not verified.

create sequence queue.audit_seq;
create function queue.next_audit_id() returns bigint
  language sql volatile
  return pg_catalog.nextval('queue.audit_seq'::regclass);

create table queue.audit (
  id     bigint       not null default queue.next_audit_id(),
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

-- Adds an operation to the audit log within the operation's transaction, and returns the record's number. Deletes records beyond the last
-- 10,000.
create function queue.record_operation(actor text, act text, what text, jobs bigint) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  number bigint;
begin
  insert into queue.audit (actor, act, what, jobs)
  values (left(record_operation.actor, 100), left(record_operation.act, 40), left(record_operation.what, 500), record_operation.jobs)
  returning audit.id into number;
  if number > 10000 then
    begin
      delete from queue.audit a
      where a.id in (
        select o.id from queue.audit o where o.id <= number - 10000 order by o.id limit 100 for update skip locked
      );
    exception
      -- At an isolation level above read committed, concurrent deletes raise an error, which must not fail the operation.
      when serialization_failure then
        null;
    end;
  end if;
  return number;
end
$$;

-- Adds `jobs` to the job count of a recorded operation, for operations that take several transactions. Changes only records of the
-- session's role.
create function queue.count_operation(id bigint, jobs bigint) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.audit a
  set jobs = a.jobs + count_operation.jobs
  where a.id = count_operation.id and a.role = session_user;
end
$$;
