-- Grants the privileges of workers to a role. Workers claim, run, settle, recover, promote and prune jobs with statements on the tables,
-- because entry points would cost too much for such frequent statements. Workers insert no jobs directly and create no tables. They use
-- entry points to create and drop day partitions, to declare and fire schedules, to expire jobs, and to enqueue jobs for handlers.
grant "queue_producer" to "queue_role";
grant select on
  queue.migration, queue.capacity, queue.paused, queue.bound, queue.bound_type, queue.bound_in_force, queue.expiry, queue.weight,
  queue.bound_in_all, queue.key_bound
  to "queue_role";
grant select, insert, update, delete on queue.lane to "queue_role";
grant select, delete on queue.job to "queue_role";
grant select, insert, delete on queue.failure to "queue_role";
grant select, insert, update, delete
on queue.ready, queue.scheduled, queue.parked, queue.lease, queue.worker, queue.idle, queue.dead, queue.progress, queue.retention, queue.type_options,
  queue.done, queue.done_many, queue.active_key, queue.key_hint
to "queue_role";
-- Locking a row before its deletion requires the privilege to update the row.
grant select, update, delete on queue.blocked, queue.unique_key, queue.waiter, queue.done_default, queue.done_many_default,
  queue.schedule, queue.fire, queue.declaration
to "queue_role";
grant select, insert, update, delete on queue.tallied, queue.tally_total, queue.tally_source to "queue_role";
grant select, insert, update, delete on queue.log, queue.step, queue.signal, queue.signal_hint, queue.child, queue.end_hint,
  queue.gather, queue.map_batch, queue.gather_part, queue.gather_hint, queue.node, queue.edge, queue.node_hint to "queue_role";
grant select, update on queue.limiter to "queue_role";
grant select, insert, update, delete on queue.permit, queue.rate to "queue_role";
grant usage, select on queue.id_seq to "queue_role";
grant usage on queue.key_seq, queue.permit_seq to "queue_role";
grant execute on function
  queue.next_id, queue.next_key, queue.next_permit, queue.id_at, queue.is_name, queue.digest, queue.hash, queue.lane_id, queue.type_of,
  queue.version_of, queue.ensure_lane, queue.wake,
  queue.notify, queue.unblock, queue.move_heads, queue.bury_blocked, queue.forget_keys, queue.holds, queue.entry_of, queue.end_of, queue.lane_floors,
  queue.worker_add_days, queue.worker_drop_day, queue.state_of, queue.fire_ticks, queue.declare_schedules, queue.elect_schedules,
  queue.expire_due, queue.expire_all, queue.is_expired, queue.expiry_text, queue.declare_limits, queue.claim_limited, queue.free_permits,
  queue.read_permits, queue.permit_floors, queue.move_permits, queue.starts_left, queue.count_running, queue.limit_awaits, queue.covers,
  queue.notify_free_permits, queue.clock_ms,
  queue.paired_lane, queue.ensure_fair_lane, queue.choose_fair, queue.in_turn, queue.claim_fair,
  queue.claim_keyed, queue.choose_under_keys, queue.choose_keyed, queue.choose_of_keys, queue.free_fair_permits, queue.key_starts,
  queue.full_fair_ids, queue.are_exhausted, queue.notify_free_fair_queues, queue.read_keyed, queue.starts_since, queue.count_starts,
  queue.roll_up, queue.add_tallies, queue.write_logs, queue.prune_logs, queue.prune_steps, queue.wake_parked, queue.prune_signals,
  queue.spawn, queue.join_name, queue.add_end_hints, queue.consume_end_hints, queue.ids_in, queue.locked_rows, queue.prune_children, queue.restart,
  queue.why_held, queue.why_holder, queue.is_in_progress,
  queue.insert_chunk, queue.add_chunk, queue.close_gather, queue.open_gather, queue.wake_keys, queue.cancel_waiting_all, queue.hold_keys,
  queue.release_parts, queue.count_gathers,
  queue.forget_gathers, queue.recount_gather,
  queue.prune_gathers, queue.ready_places,
  queue.edge_effect, queue.release_nodes, queue.prune_nodes,
  queue.counts, queue.oldest, queue.enqueued_at, queue.day_before
to "queue_role";
