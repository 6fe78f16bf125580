-- Gathers as they are kept: forgotten with their jobs, counted anew if they do not move, shown. No act of every day calls for these.

-- Deletes what is known of the gathers of these jobs: their parts go on, and are nobody's. Those that wait for their turn are let run first, for
-- nobody would ever do so again; those that wait for their parent to begin are cancelled, for it never will.
create function queue.forget_gathers(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  moved  bigint;
begin
  perform
  from queue.gather g
  where g.parent = any (forget_gathers.parents)
  order by g.parent, g.name
  for update;
  if found then
    update queue.gather g
    set room = 2147483647
    where g.parent = any (forget_gathers.parents) and g.room is not null;
    perform queue.cancel_waiting_all(array(
      select p.id
      from queue.gather g
      join queue.gather_part p on p.parent = g.parent and p.name = g.name and p.held
      where g.parent = any (forget_gathers.parents) and g.waits
    ));
    loop
      moved := (
        select sum(queue.let_run(g.parent, g.name))
        from queue.gather g
        where g.parent = any (forget_gathers.parents) and g.room is not null
      );
      exit when coalesce(moved, 0) = 0;
    end loop;
    -- One that is kept because another session tells of its end goes with that.
    delete from queue.gather_part p
    where p.ctid = any (array(
      select o.ctid
      from queue.gather_part o
      where o.id in (select u.id from queue.brood b cross join lateral unnest(b.ids) u (id) where b.parent = any (forget_gathers.parents))
      for update skip locked
    ));
    delete from queue.brood b where b.parent = any (forget_gathers.parents);
    delete from queue.gather g where g.parent = any (forget_gathers.parents);
  end if;
end
$$;

-- Counts anew what a gather needs, in one snapshot and under its lock, after it has left hints of those parts that are over, among those of the next
-- ten chunks; returns what it needs. Null if another session has it locked. Of more than a hundred chunks the count stays as it is: to
-- walk a million parts would hold up all that comes after it.
create function queue.recount_gather(parent bigint, name text) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  place  integer;
  late   bigint[];
  left_  bigint;
begin
  select g.looked into place
  from queue.gather g
  where g.parent = recount_gather.parent and g.name = recount_gather.name
  for update skip locked;
  if not found then
    return null;
  end if;
  late := array(
    select u.id
    from queue.brood b
    cross join lateral unnest(b.ids) u (id)
    where b.parent = recount_gather.parent and b.name = recount_gather.name and b.chunk >= place and b.chunk < place + 10
  );
  perform queue.note_ends(late);
  update queue.gather g
  set at = clock_timestamp(),
    need = case when (
        select count(*) from queue.brood b where b.parent = recount_gather.parent and b.name = recount_gather.name
      ) > 100 then g.need else (g.total is null)::int
      + (
        select count(*)
        from queue.brood b
        cross join lateral unnest(b.ids) u (id)
        cross join lateral (select p.id from queue.gather_part p where p.id = u.id offset 0) p
        where b.parent = recount_gather.parent and b.name = recount_gather.name
      ) + (
        select coalesce(sum(h.completed + h.dead + h.cancelled), 0)
        from queue.gather_hint h
        where h.parent = recount_gather.parent and h.name = recount_gather.name
          and h.born = g.born
      ) end,
    looked = case when exists (
      select from queue.brood b where b.parent = recount_gather.parent and b.name = recount_gather.name and b.chunk >= place + 10
    ) then place + 10 else 0 end
  where g.parent = recount_gather.parent and g.name = recount_gather.name
  returning g.need into left_;
  if left_ = 0 then
    insert into queue.signal_hint (id) values (recount_gather.parent);
  end if;
  perform queue.let_run(recount_gather.parent, recount_gather.name);
  return left_;
end
$$;

-- Looks through the gathers of the next jobs after this one, `most` of them: deletes those whose job is gone, and counts anew up to three that have
-- not moved for five minutes. Returns the last job that it looked at, or null at the end. Gathers that others hold are passed over.
create function queue.prune_gathers(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last  bigint;
begin
  select max(p.parent) into last
  from (select g.parent from queue.gather g where g.parent > prune_gathers.after order by g.parent limit prune_gathers.most) p;
  perform queue.forget_gathers(array(
    select g.parent
    from queue.gather g
    where g.parent > prune_gathers.after and g.parent <= last
      and not exists (select from queue.job j where j.id = g.parent)
    for update of g skip locked
  ));
  perform queue.recount_gather(s.parent, s.name)
  from (
    select g.parent, g.name
    from queue.gather g
    where g.parent > prune_gathers.after and g.parent <= last and g.need > 0
      and not g.waits
      and g.at < clock_timestamp() - interval '5 min'
    order by g.at
    limit 3
  ) s;
  return last;
end
$$;

-- The gathers of a job that is there, by name: the first thousand. `need` is how many parts are not counted as over; the total is null of one that is
-- still open.
create function queue.gathers(job bigint)
  returns table (name text, total bigint, need bigint, completed bigint, dead bigint, cancelled bigint, most integer)
  language sql stable
begin atomic
  select g.name, g.total, g.need - (g.total is null)::int, g.completed, g.dead, g.cancelled, g.most
  from queue.gather g
  where g.parent = gathers.job
    and exists (select from queue.job j where j.id = gathers.job)
  order by g.name
  limit 1000;
end;
