-- Returns whether there is any hint of an ordering key, an end, a parked job, a gather or a node. Also returns the earliest due time in expiry from
-- $1 on, or null if there is none. Reads one index entry of each kind.
-- $1 floor, or null for all
select exists (select from (select h.seq from queue.key_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.signal_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.end_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.gather_hint h order by h.seq limit 1) h)
    or exists (select from (select h.seq from queue.node_hint h order by h.seq limit 1) h) as keys,
  (select case when e.at <= pg_catalog.clock_timestamp() then e.at end
  from queue.expiry e
  where e.at >= coalesce($1::timestamptz, '-infinity')
  order by e.at
  limit 1) as expiry
