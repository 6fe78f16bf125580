-- Returns whether the store is on this node. `place_shard` is the shard of queue.place. All shards of a store move together, so one shard is
-- enough.
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

-- Returns whether the store is on this node, and keeps it here until the end of the transaction. It takes the same lock as Citus takes for a write,
-- and a move waits for that lock. The lock is kept, so the check runs once per transaction. A session from another node already holds such a lock.
-- It must not wait for a second lock behind a move that waits for the first one.
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
  -- Above read committed, the snapshot may be older than the lock. If the store has moved in between, the snapshot misses the moved rows. A session
  -- from another node took its lock there before it was routed here, so it is not affected.
  if pg_catalog.left(pg_catalog.current_setting('application_name'), 14) operator(pg_catalog.<>) 'citus_internal'::pg_catalog.text
    and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text
  then
    raise exception using errcode = '0A000',
      message = 'queue: on its own node a distributed store is written to under read committed only; '
        'come over another node, or lower the isolation';
  end if;
  -- A move waits for commits that are in the WAL, not for those that are still to be flushed. A commit that did not wait for the disk would be lost
  -- by a move.
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

-- Fences a write: the write is rejected once the store has moved away, even if the transaction has written before.
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
