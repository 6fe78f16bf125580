-- How many blocks ready has, and how many live and dead entries, as far as that is known: what is counted comes late, and a crash forgets it. Also,
-- if the worker $1 lives, the place that a job would have taken $2 ms and ten seconds ago.
-- $1 worker  $2 ms
-- Safe: it only reads. Where a store is spread over nodes its entries are in other tables, so there it says none.
select pg_relation_size(r.oid) / current_setting('block_size')::bigint as blocks,
  pg_stat_get_live_tuples(r.oid) as live, pg_stat_get_dead_tuples(r.oid) as dead,
  case when exists (select from queue.worker w where w.id = $1 and w.expires_at > now())
    then queue.id_at(clock_timestamp() - interval '10 s' - $2::float8 * interval '1 ms')
  end as place
from pg_class r
where r.oid = 'queue.ready'::regclass
