-- signal -> step: what a durable job receives, or that its time to do so is over; one row if the lease has the job, with the end that is journaled
-- now, if any: whether it is, until when it waited if that is over, and the payload as JSON text.
-- $1 token  $2 id  $3 the step  $4 attempt  $5 the signal  $6 the step whose time bounds the wait, or null
-- Safe: fenced as a step is, and the lease stays locked until the commit. The first signal of this name becomes the step, and is deleted only if that
-- is written here: said twice, because an answer was lost, a step is as it was said first, and no signal goes for nothing. Between a signal and the
-- end of the wait this decides, once: a signal that it sees comes first, however late; one that it does not see stays for whoever asks next.
with held as materialized (
  select l.token
  from queue.lease l
  -- guard: fenced by the token [l.token = $1 => $1::uuid is not null]; fenced by the id [ and $2 = any (l.ids)]
  where l.token = $1 and $2 = any (l.ids)
  for share  -- guard: locks the lease
), known as materialized (
  select s.until, s.output
  from queue.step s
  where s.id = $2 and s.name = $3  -- guard: what is journaled is what it was [ and s.name = $3]
), first as materialized (
  select s.seq, s.payload
  from held h
  cross join lateral (
    select s.seq, s.payload
    from queue.signal s
    where s.id = $2 and s.name = $5  -- guard: of its own signals [s.id = $2 and ]; of this name [s.name = $5 => $5::text is not null]
    order by s.seq  -- guard: in the order of their arrival [s.seq => s.seq desc]
    limit 1  -- guard: one for one
    for update skip locked  -- redundant: another wait of the attempt has another [ skip locked] (for speed: it waits for that one)
  ) s
  where not exists (select from known)  -- redundant: only if it is not journaled (the insert would do nothing, and no signal is deleted then)
), late as materialized (
  select s.until
  from held h
  cross join lateral (select s.until from queue.step s where s.id = $2 and s.name = $6 offset 0) s
  where s.until <= clock_timestamp()  -- guard: only once its time is over
    and not exists (select from first)  -- guard: a signal comes before the end of the wait
), written as (
  insert into queue.step (id, name, attempt, at, ran_ms, until, output)
  select $2, $3, $4::smallint, statement_timestamp(), 0, e.until, e.output
  from (
    select null::timestamptz as until, f.payload as output from first f
    union all
    select l.until, null from late l
  ) e
  on conflict do nothing  -- guard: said twice, what was received is as it was first
  returning until, output
), eaten as (
  delete from queue.signal s
  where s.id = $2 and s.name = $5 and s.seq = any (array(select f.seq from first f))
    and exists (select from written)  -- guard: a signal goes only into the journal
)
select e.until is not null as timed_out, e.output::text as output, e.is_journaled is true as is_journaled
from held h
left join (
  select k.until, k.output, true as is_journaled from known k
  union all
  select w.until, w.output, true from written w
) e on true
