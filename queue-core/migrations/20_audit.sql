-- Who did what to how many jobs, and when, as far as programs say it (note_act): the dashboard does, for everything that is done there. Kept for
-- the last 10,000 acts. Nobody but the functions here writes it, and so the role and the time are true; the actor is what the program says.

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

-- Notes an act, in the transaction that does it; returns the note's number. The oldest notes go.
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
      -- Others clean up as well, which under a strict isolation is an error; the act is not to fail for it.
      when serialization_failure then
        null;
    end;
  end if;
  return number;
end
$$;

-- Adds to how many jobs an act was done that takes several transactions, by the role that has noted it.
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
