-- Grants the privileges of producers to a role. Producers enqueue jobs, send signals to them, query their status, and wait for them.
-- Producers read no payloads and access tables only through SECURITY DEFINER entry points. The other functions in this list run with the
-- caller's rights, and only select an entry point or compute a value.
grant execute on function
  queue.enqueue, queue.enqueue_with, queue.enqueue_each, queue.try_enqueue,
  queue.insert_job, queue.producer_enqueue, queue.producer_enqueue_with, queue.producer_lock_keys, queue.lock_keys,
  queue.called_by, queue.is_trusted, queue.ensure_lanes, queue.payload_limit, queue.unique_hash, queue.digest,
  queue.status, queue.wait, queue.job_states, queue.announce_waiter, queue.leave_waiter, queue.channel, queue.signal,
  queue.enqueue_flow, queue.link_flow, queue.reject_node, queue.enqueue_parts, queue.add_parts,
  queue.node_dependencies, queue.node_error, queue.enqueue_node, queue.queue_of_type
to "queue_role";
