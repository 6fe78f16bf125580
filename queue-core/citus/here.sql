-- Returns whether the store is on this node. `place_shard` is a placeholder for the shard id of queue.place. All shards of a store move
-- together, so checking this shard is enough.
create or replace function queue_here.is_here() returns boolean
  language plpgsql volatile
as $$
begin
  return pg_catalog.current_setting('queue_held.s_place_shard', true) operator(pg_catalog.=) 'yes'::pg_catalog.text or exists (
    select
    from pg_catalog.pg_dist_placement p
    join pg_catalog.pg_dist_local_group g on p.groupid operator(pg_catalog.=) g.groupid
    where p.shardid operator(pg_catalog.=) place_shard);
end
$$;

-- Returns whether the store is on this node. If so, prevents a move of the store until the end of the transaction. The function takes the
-- same lock as a Citus write, and a move waits for this lock. The transaction keeps the lock, so the check runs once per transaction. For
-- a session that Citus opens from another node, the transaction on the other node already holds the lock. Such a session does not request
-- the lock again, because the request could queue behind a move that waits for the other node's transaction.
create or replace function queue_here.holds() returns boolean
  language plpgsql volatile security definer
as $$
declare
  home   integer;
  here   integer;
  before integer;
begin
  if pg_catalog.current_setting('queue_held.s_place_shard', true) operator(pg_catalog.=) 'yes'::pg_catalog.text then
    return true;
  end if;
  if pg_catalog.left(pg_catalog.current_setting('application_name'), 14) operator(pg_catalog.<>) 'citus_internal'::pg_catalog.text then
    perform pg_catalog.lock_shard_metadata(5, '{place_shard}'::pg_catalog.int8[]);
  end if;
  select p.groupid, g.groupid into home, here
  from pg_catalog.pg_dist_placement p
  cross join pg_catalog.pg_dist_local_group g
  where p.shardid operator(pg_catalog.=) place_shard;
  if home operator(pg_catalog.<>) here then
    return false;
  end if;
  -- At an isolation level above read committed, the snapshot may be older than the lock. If the store moves after the snapshot was taken
  -- and before the lock is taken, the snapshot misses the moved rows. Sessions from another node are not affected, because their
  -- transaction took the lock before Citus routed it to this node.
  if pg_catalog.left(pg_catalog.current_setting('application_name'), 14) operator(pg_catalog.<>) 'citus_internal'::pg_catalog.text
    and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text
  then
    raise exception using errcode = '0A000',
      message = 'queue: on its own node a distributed store is written to under read committed only; '
        'come over another node, or lower the isolation';
  end if;
  -- A move waits only for commits whose WAL is flushed to disk. With synchronous_commit = off, a commit does not wait for the flush, so a
  -- move could lose the commit.
  if pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off'::pg_catalog.text then
    perform pg_catalog.set_config('synchronous_commit', 'local', true);
  end if;
  select l.node into before from queue.place l;
  if before operator(pg_catalog.<>) here then
    perform queue_here.arrive(here);
  end if;
  perform pg_catalog.set_config('queue_held.s_place_shard', 'yes', true);
  return true;
end
$$;

-- Raises an error if the store has moved to another node. Otherwise returns true, and prevents a move until the end of the transaction.
create or replace function queue_here.held() returns boolean
  language plpgsql volatile
as $$
begin
  if not queue_here.holds() then
    raise exception using errcode = '57P03', message = 'queue: the store has moved to another node';
  end if;
  return true;
end
$$;
