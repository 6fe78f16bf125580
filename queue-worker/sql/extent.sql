-- Returns the number of blocks of the table ready, and the numbers of its live and dead rows from the statistics. Also returns the lowest
-- position that could have been assigned ten seconds plus $2 ms ago, or null if the heartbeat of the worker $1 has expired.
-- $1 worker  $2 milliseconds
-- Safe: read-only. Does not search pg_class, because Citus hides the rows of shards there.
select pg_relation_size(r.oid) / current_setting('block_size')::bigint as blocks,
  pg_stat_get_live_tuples(r.oid) as live, pg_stat_get_dead_tuples(r.oid) as dead,
  case when exists (select from queue.worker w where w.id = $1 and w.expires_at > now())
    then queue.id_at(clock_timestamp() - interval '10 s' - $2::float8 * interval '1 ms')
  end as place
from (select 'queue.ready'::regclass as oid) r
