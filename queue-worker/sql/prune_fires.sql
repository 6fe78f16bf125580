-- fire, declaration, schedule -> nothing: deletes up to $2 ticks that fired more than $1 seconds ago and have no unfinished job. Also
-- deletes schedules that were withdrawn more than $1 seconds ago. Deletes declarations that no registered worker lists and that were last
-- seen more than $1 seconds ago, or more than one day ago if $1 is less than a day. Returns the number of deleted ticks.
-- $1 retention in seconds  $2 maximum number of ticks
-- Safe: locked rows are skipped and left for the next run.
with fires as (
  delete from queue.fire
  where ctid = any (array(
    select f.ctid
    from queue.fire f
    where f.fired_at < now() - $1 * interval '1 second'
      and (f.job is null or queue.state_of(f.job) is null or queue.state_of(f.job) in ('completed', 'cancelled', 'expired', 'dead'))
    order by f.fired_at
    limit $2
    for update skip locked
  ))
  returning name
), declarations as (
  delete from queue.declaration
  where ctid = any (array(
    select d.ctid
    from queue.declaration d
    where d.last_seen < now() - greatest($1, 86400) * interval '1 second'
      and not exists (select from queue.worker w where d.definition = any (w.declares))
    for update skip locked
  ))
), schedules as (
  delete from queue.schedule
  where ctid = any (array(
    select s.ctid
    from queue.schedule s
    where s.withdrawn_at < now() - $1 * interval '1 second'
    for update skip locked
  ))
)
select count(*) from fires
