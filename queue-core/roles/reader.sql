-- Grants the privileges of readers to a role. Readers query jobs and their failures. They cannot read payloads, outputs, checkpoints or
-- lease tokens.
grant select on queue.migration, queue.lane, queue.ready, queue.scheduled, queue.active_key, queue.blocked, queue.parked, queue.worker,
  queue.done_many, queue.dead, queue.failure, queue.capacity, queue.retention, queue.type_options, queue.paused, queue.weight, queue.fire,
  queue.audit, queue.bound, queue.bound_type, queue.bound_in_force, queue.key_bound, queue.limiter, queue.rate, queue.tallied, queue.tally_total,
  queue.log
to "queue_role";
grant select (id, name, attempt, at, ran_ms, until) on queue.step to "queue_role";
grant select (id, seq, name, at) on queue.signal to "queue_role";
grant select (parent, name, id, at, state, attempts, error) on queue.child to "queue_role";
grant select on queue.gather to "queue_role";
grant select on queue.node, queue.edge to "queue_role";
grant select (id, lane, max_attempts, key, meta, system, fair_id) on queue.job to "queue_role";
grant select (worker, claimed_at, lane, ids, attempts, crashes, cancelling) on queue.lease to "queue_role";
grant select (limit_id, place, n) on queue.permit to "queue_role";
grant select (id) on queue.job_default, queue.done_default, queue.failure_default, queue.step_default to "queue_role";
grant select (first_id) on queue.done_many_default to "queue_role";
grant select (id, finished_at, ran_ms, attempts, cancelled, expired) on queue.done to "queue_role";
grant select (id, attempt, updated_at, fraction, stage, counts) on queue.progress to "queue_role";
grant select (id, queue, job_type, priority, state, attempts, max_attempts, crashes, enqueued_at, run_at, finished_at, worker, error, meta,
  system, version)
on queue.jobs
to "queue_role";
grant select (name, job_type, cron, every, tz, missed, grace, overlap, jitter, supersede, source, definition, since, next_at, skip_at, tried_at,
  again_at, paused_at, undeclared_since, withdrawn_at, error)
on queue.schedule
to "queue_role";
grant execute on function
  queue.reader_list, queue.reader_find, queue.counts, queue.workers, queue.capacities, queue.depth, queue.depths, queue.lane_floors, queue.oldest,
  queue.backlog, queue.id_at, queue.enqueued_at, queue.type_of, queue.version_of, queue.stored_type, queue.pauses, queue.pause_awaits, queue.limits,
  queue.covers, queue.key_queue, queue.limit_keys, queue.waits_for, queue.why, queue.why_causes, queue.why_holder, queue.why_snapshots,
  queue.why_text, queue.why_sessions, queue.why_table_locked, queue.history, queue.read_history, queue.histogram_buckets, queue.quantile,
  queue.bounds_ms, queue.logs, queue.steps, queue.full_limits,
  queue.signals, queue.children, queue.gathers, queue.join_name, queue.nodes, queue.day_before
to "queue_role";
