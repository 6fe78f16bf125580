-- key_hint | end_hint | gather_hint | signal_hint | node_hint, looked at: a job of the first hint of the kind $1, which is or waits for what it says;
-- if there is none, the first job that is blocked, or a job of the first hint of a kind that leads to it. Null if there is none of these either.
-- $1 kind
-- Safe: it only reads. Asked only to be logged, while hints of that kind are left in place.
select (
  select h.job
  from (
    values
      (0, 'keys', coalesce(
        (
          select (select b.id from queue.blocked b where b.key = k.key and b.seq > k.after order by b.seq limit 1)
          from queue.key_hint k
          order by k.seq
          limit 1),
        (select b.id from queue.blocked b order by b.key, b.seq limit 1))),
      (1, 'ends', (select e.ids[1] from queue.end_hint e order by e.seq limit 1)),
      (2, 'gathers', (select g.parent from queue.gather_hint g order by g.seq limit 1)),
      (3, 'signals', (select s.id from queue.signal_hint s order by s.seq limit 1)),
      (4, 'nodes', (
        select coalesce((select e.target from queue.edge e where e.source = n.id limit 1), n.id)
        from queue.node_hint n
        order by n.seq
        limit 1))
  ) h (nr, kind, job)
  where h.job is not null and (h.kind = $1 or ($1 <> 'keys' and h.kind <> 'keys'))
  order by h.kind <> $1, h.nr
  limit 1
) as job
