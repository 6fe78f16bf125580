-- Many jobs at once for those who enqueue through doors, and for jobs with uniqueness keys.

-- Enqueues each, unless its key is held, in the caller's transaction; returns their ids and what came of them, in the order given. As
-- queue.enqueue_with, one after the other. Jobs without a uniqueness key come first, in the order given; keys are then taken in the order of
-- their hashes, so that two producers with the same keys do not wait for each other.
create function queue.enqueue_each(job_types text[], payloads jsonb[], options jsonb[]) returns table (id bigint, outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  with given as materialized (
    select g.*
    from rows from (unnest(enqueue_each.job_types), unnest(enqueue_each.payloads), unnest(enqueue_each.options))
      with ordinality g (job_type, payload, options, place)
    order by queue.unique_hash(coalesce(g.options ->> 'queue', 'default'), g.job_type, g.options ->> 'unique_key') nulls first, g.place
  )
  select e.id, e.outcome
  from given g
  cross join lateral queue.enqueue_with(g.job_type, g.payload, g.options) e
  order by g.place;
end
$$;
