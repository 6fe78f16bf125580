-- Whether any ordering key waits to be looked at. Reads one index entry.
select exists (select from (select from queue.key_hint h order by h.seq limit 1) h)
