-- Grants the privileges of operators to a role. Operators have the privileges of readers, and also read payloads, outputs and
-- checkpoints. They change jobs and schedules only through functions.
grant "queue_reader" to "queue_role";
grant select (payload) on queue.job to "queue_role";
grant select (output) on queue.done to "queue_role";
grant select (checkpoint) on queue.progress to "queue_role";
grant select (output) on queue.step to "queue_role";
grant select (payload) on queue.signal to "queue_role";
grant select (output) on queue.child to "queue_role";
grant select on queue.jobs, queue.schedule to "queue_role";
grant execute on function
  queue.list, queue.list_page, queue.pick, queue.newest_ready, queue.find, queue.status, queue.entry_of, queue.end_of, queue.attempt_of,
  queue.lane_id, queue.hash, queue.digest,
  queue.cancel, queue.reschedule, queue.snooze, queue.run_now, queue.set_priority, queue.requeue, queue.discard,
  queue.apply_to_one, queue.apply_to_all, queue.cancel_waiting_all, queue.cancel_running_all, queue.cancel_flow, queue.reschedule_all,
  queue.run_now_all,
  queue.set_priority_all, queue.requeue_all, queue.discard_all, queue.set_capacity, queue.pause, queue.resume, queue.set_limit,
  queue.unset_limit, queue.set_limit_key, queue.set_weight, queue.record_operation, queue.count_operation,
  queue.schedule, queue.unschedule, queue.pause_schedule, queue.resume_schedule, queue.skip_schedule, queue.run_schedule,
  queue.signal, queue.called_by, queue.enqueue_with, queue.producer_enqueue_with, queue.is_trusted, queue.any_queue
to "queue_role";
