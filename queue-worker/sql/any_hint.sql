-- Returns whether there is any hint about a freed ordering key, an ended job, a parked job, a map or a flow node. Also returns the earliest
-- time at or after $1 in the table expiry if that time has been reached, otherwise null. Reads one index entry per kind of hint and one of
-- expiry.
-- $1 earliest time to read in expiry, or null for all
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
