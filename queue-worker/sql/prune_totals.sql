-- tally_total, tally_source -> nothing: deletes up to $1 expired totals per resolution. Ten-second totals are kept for an hour and
-- one-minute totals for 25 hours. Hourly totals are kept for 31 days and daily totals for 32 days. Also deletes the tally_source rows of
-- processes that have written nothing for a day. Returns the largest number of totals deleted for any one resolution.
-- $1 maximum number of totals per resolution
-- Safe: locked rows are skipped and left for the next run. A process retries a batch of totals for at most half a day, so its row in
-- tally_source outlives the retries.
with finished as materialized (
  delete from queue.tally_total
  where ctid = any (array(
    select o.at
    from (values (10, interval '1 hour'), (60, interval '25 hours'), (3600, interval '31 days'), (86400, interval '32 days')) k (step, kept)
    cross join lateral (
      select t.ctid as at
      from queue.tally_total t
      where t.step = k.step and t.at < now() - k.kept
      order by t.at
      limit $1
      for update skip locked
    ) o
  ))
  returning step
), sources as (
  delete from queue.tally_source
  where source = any (array(
    select s.source
    from queue.tally_source s
    where s.at < now() - interval '1 day'
    for update skip locked
  ))
)
select coalesce(max(n.rows), 0)
from (select count(*) as rows from finished o group by o.step) n
