-- nothing -> tallied: writes the outcomes of attempts that ended in this process, one row per queue and type. The middle of the measured
-- interval was $3 ms ago. Returns the number of rows.
-- $1 process, random  $2 number of the batch, increasing  $3 age in ms  $4 queues  $5 job types  $6 completed  $7 retried  $8 dead
-- $9 cancelled  $10 snoozed  $11 released  $12 expired  $13 lease_lost  $14 timed_out  $15 panicked  $16 crashed
-- $17 run times and $18 start latencies, both as histograms in the tables' format
-- Safe: each batch is written only once, even if its rows have since been rolled up, because tally_source stores the last number of each
-- process. The process can therefore retry the batch until the server responds. Runs with synchronous_commit=off: a crash may lose a batch.
-- Each process has its own row in tally_source, so the statement waits for no lock.
with news as (
  insert into queue.tally_source as s (source, number, at)
  values ($1, $2, now())
  on conflict (source) do update
  set number = excluded.number, at = excluded.at
  where s.number < excluded.number
  returning s.number
), input as (
  insert into queue.tallied (at, queue, job_type, completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, timed_out, panicked,
    crashed, run, start)
  select date_bin('10 s', now() - $3::float8 * interval '1 millisecond', '1970-01-01+00'), t.queue, t.job_type, t.completed, t.retried, t.dead,
    t.cancelled, t.snoozed, t.released, t.expired, t.lease_lost, t.timed_out, t.panicked, t.crashed, t.run::numeric, t.start::numeric
  from unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::text[], $18::text[])
    t (queue, job_type, completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, timed_out, panicked, crashed, run, start)
  where exists (select from news)
  returning 1
)
select count(*) from input
