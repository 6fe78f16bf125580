-- signal -> step: receives signals, or records timeouts of waits, for many requests. Returns a row for each request whose lease contains
-- the job. The row shows whether another session has locked the lease. If not, the row shows whether the step is journaled, whether the
-- wait timed out, and the payload as JSON text.
-- $1 tokens  $2 ids  $3 steps  $4 attempts  $5 signal names  $6 steps that hold the deadlines of the waits, null for no timeout
-- Safe: fenced like steps, and the leases stay locked until the commit. A lease that another session has locked is skipped, and its
-- requests are sent again. The oldest signals of a name are assigned to the requesting steps. Each signal is deleted only if this
-- statement writes its step. A second call after a lost response therefore leaves each step as first written, and no signal is lost. Only
-- this statement decides between a signal and a timeout. A visible signal takes precedence even after the timeout. A signal that is not
-- visible yet stays for the next request.
with input as materialized (
  select distinct on (s.token, s.id, s.name) s.*
  from unnest($1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::text[]) with ordinality
    s (token, id, name, attempt, signal, bound, place)
  order by s.token, s.id, s.name, s.place
), held as materialized (
  select l.token, l.ids
  from queue.lease l
  where l.token = any ($1)
  for share skip locked
), fenced as materialized (
  select s.*
  from input s
  join held h on h.token = s.token and s.id = any (h.ids)
), known as materialized (
  select f.id, f.name, k.until, k.output
  from fenced f
  cross join lateral (
    select k.until, k.output
    from queue.step k
    where k.id = f.id and k.name = f.name
    offset 0
  ) k
), asking as materialized (
  select f.*, row_number() over (partition by f.id, f.signal order by f.place) as turn
  from fenced f
  where not exists (select from known k where k.id = f.id and k.name = f.name)
), first as materialized (
  select a.id, a.signal, s.place, s.payload, row_number() over (partition by a.id, a.signal order by s.seq) as turn
  from (select a.id, a.signal, count(*) as most from asking a group by a.id, a.signal) a
  cross join lateral (
    select s.ctid as place, s.seq, s.payload
    from queue.signal s
    where s.id = a.id and s.name = a.signal
    order by s.seq
    limit a.most
    for update skip locked
  ) s
), heard as materialized (
  select a.id, a.name, f.place, f.payload
  from asking a
  join first f on f.id = a.id and f.signal = a.signal and f.turn = a.turn
), late as materialized (
  select a.id, a.name, s.until
  from asking a
  cross join lateral (select s.until from queue.step s where s.id = a.id and s.name = a.bound offset 0) s
  where s.until <= clock_timestamp()
    and not exists (select from heard h where h.id = a.id and h.name = a.name)
), written as (
  insert into queue.step (id, name, attempt, at, ran_ms, until, output)
  select a.id, a.name, a.attempt, statement_timestamp(), 0, l.until, h.payload
  from asking a
  left join heard h on h.id = a.id and h.name = a.name
  left join late l on l.id = a.id and l.name = a.name
  where h.id is not null or l.id is not null
  order by a.id, a.name
  on conflict do nothing
  returning id, name, until, output
), eaten as (
  delete from queue.signal
  where ctid = any (array(
    select h.place
    from heard h
    where exists (select from written w where w.id = h.id and w.name = h.name)
  ))
)
select f.token, f.id, f.name, false as is_locked, e.until is not null as timed_out, e.output::text as output,
  e.is_journaled is true as is_journaled
from fenced f
left join (
  select k.id, k.name, k.until, k.output, true as is_journaled from known k
  union all
  select w.id, w.name, w.until, w.output, true from written w
) e on e.id = f.id and e.name = f.name
union all
select s.token, s.id, s.name, true, false, null, false
from input s
cross join lateral (select l.ids from queue.lease l where l.token = s.token offset 0) l
where s.id = any (l.ids) and not exists (select from held h where h.token = s.token)
