-- Fills an empty store with 30 days of jobs, as if producers and workers had written the rows. The session settings `sizes.*` give the
-- numbers of jobs and queues.
--
-- Of the completed jobs, 45 % are in bursts of 200 per lane, 45 % are in pairs, and 10 % are single. At full size, q1 has
-- 13 % of all jobs, and half of the queues share 19 %. Job type `rare` has one completed, one dead and one scheduled job, which were
-- enqueued 17 days ago.
set synchronous_commit = off;
set work_mem = '128MB';
select setseed(0.5);

do $$
declare
  day     date;
  parent  text;
begin
  for day in select current_date - n from generate_series(1, 31) n loop
    foreach parent in array array['job', 'done', 'done_many', 'failure'] loop
      execute format('create table queue.%I partition of queue.%I for values from (%s) to (%s)', parent || '_' || queue.day_name(day), parent,
        queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
    end loop;
  end loop;
end
$$;

insert into queue.lane (lane, queue, job_type, priority, solo)
select queue.lane_id(n.queue, n.job_type, n.priority, false), n.queue, n.job_type, n.priority, false
from (
  select 'q' || n as queue, 't' || n % 20 as job_type, 100 as priority from generate_series(1, current_setting('sizes.queues')::int) n
  union
  select 'q' || q, 't' || t, 100 from generate_series(1, 10) q, generate_series(0, 19) t
  union
  select 'q' || q, 't' || q % 20, 50 from generate_series(1, 100) q
  union
  select 'q9', 'rare', 100
) n;

create temporary table lanes as
  select row_number() over (order by length(l.queue), l.queue, l.job_type, l.priority)::int as n, l.lane
  from queue.lane l
  where l.job_type <> 'rare';
create unique index on lanes (n);
analyze lanes;

-- Maps a uniformly distributed `share` to a lane number. The result is skewed: few lanes have most of the jobs.
create function pg_temp.lane_number(share double precision) returns int language sql immutable
  return 1 + floor(share * share * share * current_setting('sizes.queues')::int)::int;

-- Returns the id of a job that was enqueued `ago` before now. Each statement uses its own values of `kind`, so that the ids of different
-- statements differ.
create function pg_temp.id(ago interval, n bigint, kind bigint) returns bigint language sql stable
  return queue.id_at(now() - ago) + ((n * 16 + kind) & 1048575);

-- Jobs to create. `kind` is `burst` or `pair` for jobs that complete together, and otherwise the state. `n` numbers the bursts, the pairs,
-- or the jobs of the other kinds.
create temporary table made (kind text, id bigint, lane bigint, n bigint);

insert into made
select 'burst', pg_temp.id(b.ago - interval '20 ms' * j, b.n * 200 + j, 0), l.lane, b.n
from (
  select n, interval '29 days 20 hours' * (1 - n::float8 / b.bursts) + interval '10 minutes' as ago, pg_temp.lane_number(random()) as at
  from (select current_setting('sizes.done')::bigint * 9 / 20 / 200 as bursts) b, generate_series(1, b.bursts) n
) b
join lanes l on l.n = b.at
cross join generate_series(0, 199) j;

insert into made
select 'pair', pg_temp.id(p.ago - interval '5 ms' * j, p.n * 2 + j, 1), l.lane, p.n
from (
  select n, interval '29 days 20 hours' * (1 - n::float8 / b.pairs) + interval '2 minutes' as ago, pg_temp.lane_number(random()) as at
  from (select current_setting('sizes.done')::bigint * 9 / 20 / 2 as pairs) b, generate_series(1, b.pairs) n
) p
join lanes l on l.n = p.at
cross join generate_series(0, 1) j;

insert into made
select s.kind, pg_temp.id(s.back * (1 - s.n::float8 / s.jobs) + s.least, s.n, s.number), l.lane, s.n
from (
  select k.*, n, pg_temp.lane_number(random()) as at
  from (values
    ('done', current_setting('sizes.done')::bigint / 10, 2, interval '29 days 20 hours', interval '1 minute'),
    ('ready', current_setting('sizes.ready')::bigint, 3, interval '2 hours', interval '1 s'),
    ('scheduled', current_setting('sizes.scheduled')::bigint, 4, interval '29 days', interval '2 s'),
    ('dead', current_setting('sizes.dead')::bigint, 5, interval '29 days', interval '3 s'),
    ('running', current_setting('sizes.running')::bigint, 6, interval '1 hour', interval '4 s'),
    ('blocked', current_setting('sizes.running')::bigint, 7, interval '1 day', interval '5 s')
  ) k (kind, jobs, number, back, least)
  cross join generate_series(1, k.jobs) n
) s
join lanes l on l.n = s.at;

insert into made
select k.kind, pg_temp.id(interval '17 days', k.n, 8), queue.lane_id('q9', 'rare', 100, false), k.n
from (values ('done', 1000000001), ('dead', 1000000002), ('scheduled', 1000000003)) k (kind, n);

insert into queue.job (id, lane, max_attempts, payload, key, meta)
select m.id, m.lane, 20, jsonb_build_object('to', 'user' || m.n % 100000 || '@example.com', 'subject', 'An order has come', 'order', m.n),
  case when m.kind = 'blocked' then m.n % 1000 end, case when m.n % 10 = 0 then jsonb_build_object('tenant', 'tenant' || m.n % 1000) end
from made m;

insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
select min(m.id), max(m.id), queue.enqueued_at(max(m.id)) + interval '1 s', m.lane, array_agg(m.id order by m.id)
from made m
where m.kind in ('burst', 'pair')
group by m.kind, m.n, m.lane, m.id >> 33;

insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, expired, output)
select m.id, queue.enqueued_at(m.id) + interval '2 s', 20, 1 + m.n % 3, m.n % 10007 in (1, 2), m.n % 10007 = 2,
  case when m.n % 10007 > 2 then '{"sent": true}'::jsonb end
from made m
where m.kind = 'done';

insert into queue.ready (lane, seq, id, attempts) select m.lane, m.id, m.id, m.n % 50 / 49 from made m where m.kind = 'ready';
insert into queue.scheduled (run_at, id, lane, attempts)
select now() + interval '1 hour' + m.n % 100000 * interval '10 s', m.id, m.lane, m.n % 2 from made m where m.kind = 'scheduled';
insert into queue.blocked (key, seq, id, lane) select m.n % 1000, m.id, m.id, m.lane from made m where m.kind = 'blocked';
insert into queue.active_key (key, seq, id)
select distinct on (m.n % 1000) m.n % 1000, m.id, m.id from made m where m.kind = 'blocked' order by m.n % 1000, m.id;
insert into queue.dead (id, died_at, lane, attempts, crashes, error)
select m.id, queue.enqueued_at(m.id) + interval '1 hour', m.lane, 3, 0,
  case when m.n = 1000000002 then 'the one of its kind' else 'connect to 10.0.' || m.n % 50 || '.1: connection refused (order ' || m.n || ')' end
from made m
where m.kind = 'dead';
insert into queue.failure (id, attempt, at, ran_ms, error)
select m.id, a.n, queue.enqueued_at(m.id) + a.n * interval '1 minute', 30,
  'connect to 10.0.' || m.n % 50 || '.1: connection refused (order ' || m.n || ')'
from made m
cross join lateral generate_series(
  1, case m.kind when 'dead' then 3 when 'scheduled' then m.n % 2 when 'ready' then m.n % 50 / 49 else m.n % 3 end
) a (n)
where m.kind in ('dead', 'done', 'scheduled', 'ready');

insert into queue.worker (id, expires_at, started_at, name, host, pid, version, queues)
select gen_random_uuid(), now() + interval '1 day', now() - interval '1 day', 'worker-' || n, 'host-' || n % 10, 1000 + n, '1.0.0', '{}'
from generate_series(1, 100) n;
with workers as (
  select w.id, row_number() over () as n from queue.worker w
)
insert into queue.lease (token, worker, claimed_at, ids, attempts, crashes)
select gen_random_uuid(), w.id, now() - interval '5 s', array_agg(m.id), array_agg(1::smallint), array_agg(0::smallint)
from made m
join workers w on w.n = 1 + m.n / 20 % 100
where m.kind = 'running'
group by w.id, m.n / 20;

-- Writes totals for all jobs (''), for some pairs of queue and job type, and for the remaining pairs together ('*'). The number of pairs
-- with totals of their own is 5 % of the number of queues. The totals cover the full retention period of each resolution.
insert into queue.tally_total
select k.step, t.at, p.queue, p.job_type, 100, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, trunc(power(10::numeric, 80)) * 60 + trunc(power(10::numeric, 96)) * 40,
  trunc(power(10::numeric, 112)) * 104
from (values (10, interval '1 hour'), (60, interval '25 hours'), (3600, interval '31 days'), (86400, interval '32 days')) k (step, kept)
cross join lateral (
  select date_bin(make_interval(secs => k.step), s, '1970-01-01+00') as at
  from generate_series(now() - k.kept, now(), make_interval(secs => k.step)) s
) t
cross join (
  (select l.queue, l.job_type
  from (select distinct l.queue, l.job_type from queue.lane l) l
  order by length(l.queue), l.queue, l.job_type
  limit current_setting('sizes.queues')::int / 20)
  union all
  select '', ''
  union all
  select '*', '*'
) p
on conflict do nothing;
insert into queue.tallied
select now() - interval '10 s' * (n % 3), l.queue, l.job_type, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, trunc(power(10::numeric, 80)) * 11,
  trunc(power(10::numeric, 112)) * 11
from (select l.queue, l.job_type, row_number() over () as n from queue.lane l limit 1000) l;

drop table made;
drop table lanes;
reset all;
