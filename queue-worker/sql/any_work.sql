-- Returns the kind of work in a store for which this process runs no worker: 0 no work, 1 ready jobs, 2 maintenance, such as due jobs,
-- hints or leases to recover. Reads one index entry per lane and per kind of maintenance, and if nothing else is found, every lease.
-- $1 job types  $2 queues, null for any
-- Safe: read-only. A worker that is then started queries again, and the next poll finds work that this query has missed.
select case
  when exists (
    select
    from queue.lane l
    cross join lateral (select from queue.ready r where r.lane = l.lane order by r.seq limit 1) r
    where l.job_type = any ($1::text[]) and ($2::text[] is null or l.queue = any ($2))
      -- Jobs of paused lanes are found by a poll after the lanes are resumed.
      and not exists (select from queue.paused p where p.queue in ('*', l.queue) and p.job_type in ('*', l.job_type))
  ) then 1
  when exists (select from (select s.run_at from queue.scheduled s order by s.run_at limit 1) s where s.run_at <= pg_catalog.clock_timestamp())
    or exists (
      select
      from (select p.run_at from queue.parked p where p.run_at is not null order by p.run_at limit 1) p
      where p.run_at <= pg_catalog.clock_timestamp()
    )
    or exists (select from (select h.seq from queue.key_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.signal_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.end_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.gather_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.node_hint h order by h.seq limit 1) h)
    or exists (select from (select e.at from queue.expiry e order by e.at limit 1) e where e.at <= pg_catalog.clock_timestamp())
    or exists (
      select
      from (
        select coalesce(s.next_at, '-infinity') as next_at
        from queue.schedule s
        where s.paused_at is null and s.withdrawn_at is null and s.error is null
        order by coalesce(s.next_at, '-infinity'), s.name
        limit 1
      ) s
      where s.next_at <= pg_catalog.clock_timestamp()
    )
    -- Leases of workers without a valid heartbeat await recovery.
    or exists (select from queue.lease l where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now()))
  then 2
  else 0
end as what
