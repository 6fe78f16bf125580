-- signal -> step: what durable jobs receive, or that their time to do so is over, many asks at once; a row for each whose lease has its job:
-- whether somebody else has locked that, and if not, what is journaled now, if anything: whether the wait is over, the payload as JSON text, and
-- whether there is anything.
-- $1 tokens  $2 ids  $3 steps  $4 attempts  $5 signals  $6 the steps whose times bound the waits, null for none
-- Safe: fenced as steps are, and the leases stay locked until the commit; one that somebody has locked is passed over, and is asked for again. The
-- first signals of a name become the steps that ask for it, and each is deleted only if its step is written here: said twice, because an answer was
-- lost, a step is as it was said first, and no signal goes for nothing. Between a signal and the end of a wait this decides, once: a signal that it
-- sees comes first, however late; one that it does not see stays for whoever asks next.
with said as materialized (
  select distinct on (s.token, s.id, s.name) s.*
  from unnest($1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::text[]) with ordinality
    s (token, id, name, attempt, signal, bound, place)
  order by s.token, s.id, s.name, s.place
), held as materialized (
  select l.token, l.ids
  from queue.lease l
  -- redundant: only the leases named [l.token = any ($1) => $1::uuid[] is not null] (for others: it would lock their leases)
  where l.token = any ($1)
  for share skip locked  -- guard: locks the leases; waits for no lease [ skip locked]
), fenced as materialized (
  select s.*
  from said s
  -- guard: fenced by the token [h.token = s.token and ]; fenced by the id [ and s.id = any (h.ids)]; fenced at all
  join held h on h.token = s.token and s.id = any (h.ids)
), known as materialized (
  select f.id, f.name, k.until, k.output
  from fenced f
  cross join lateral (
    select k.until, k.output
    from queue.step k
    where k.id = f.id and k.name = f.name  -- guard: what is journaled is what it was [ and k.name = f.name]
    offset 0
  ) k
), asking as materialized (
  select f.*, row_number() over (partition by f.id, f.signal order by f.place) as turn
  from fenced f
  -- redundant: only if it is not journaled (the insert would do nothing, and no signal is deleted then)
  where not exists (select from known k where k.id = f.id and k.name = f.name)
), first as materialized (
  select a.id, a.signal, s.place, s.payload, row_number() over (partition by a.id, a.signal order by s.seq) as turn
  from (select a.id, a.signal, count(*) as most from asking a group by a.id, a.signal) a
  cross join lateral (
    select s.ctid as place, s.seq, s.payload
    from queue.signal s
    -- guard: of its own signals [s.id = a.id and ]; of this name [ and s.name = a.signal]
    where s.id = a.id and s.name = a.signal
    order by s.seq  -- guard: in the order of their arrival [s.seq => s.seq desc]
    limit a.most  -- redundant: no more than ask (for speed: it would lock all of them)
    for update skip locked  -- redundant: another wait of the attempt has another [ skip locked] (for speed: it waits for that one)
  ) s
), heard as materialized (
  select a.id, a.name, f.place, f.payload
  from asking a
  join first f on f.id = a.id and f.signal = a.signal and f.turn = a.turn  -- guard: one for one [ and f.turn = a.turn]
), late as materialized (
  select a.id, a.name, s.until
  from asking a
  cross join lateral (select s.until from queue.step s where s.id = a.id and s.name = a.bound offset 0) s
  where s.until <= clock_timestamp()  -- guard: only once its time is over
    -- guard: a signal comes before the end of the wait
    and not exists (select from heard h where h.id = a.id and h.name = a.name)
), written as (
  insert into queue.step (id, name, attempt, at, ran_ms, until, output)
  select a.id, a.name, a.attempt, statement_timestamp(), 0, l.until, h.payload
  from asking a
  left join heard h on h.id = a.id and h.name = a.name
  left join late l on l.id = a.id and l.name = a.name
  where h.id is not null or l.id is not null  -- guard: only what has come, or is over
  order by a.id, a.name  -- redundant: in the order of ids (a job is in one lease, so no other writes its steps)
  on conflict do nothing  -- guard: said twice, what was received is as it was first
  returning id, name, until, output
), eaten as (
  delete from queue.signal
  where ctid = any (array(
    select h.place
    from heard h
    -- guard: a signal goes only into the journal; each into its own step [w.id = h.id and .. = h.name => true]
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
from said s
cross join lateral (select l.ids from queue.lease l where l.token = s.token offset 0) l
-- guard: what is locked is asked for again
where s.id = any (l.ids) and not exists (select from held h where h.token = s.token)
