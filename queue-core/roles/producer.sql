-- A producer enqueues, asks how its jobs are, and waits for them. It sees no payload, and touches no table: all it does goes through doors.
-- What is no door here has no rights of its own: it finds out which way to go, or is a calculation.
grant execute on function
  queue.enqueue, queue.enqueue_with, queue.enqueue_each, queue.try_enqueue,
  queue.insert_job, queue.producer_enqueue, queue.producer_enqueue_with, queue.producer_lock_keys, queue.lock_keys,
  queue.called_by, queue.is_trusted, queue.meet_lanes, queue.payload_limit, queue.unique_hash, queue.digest,
  queue.status, queue.wait, queue.look, queue.announce_waiter, queue.leave_waiter, queue.channel, queue.signal,
  queue.enqueue_flow, queue.link_flow, queue.refuse_node, queue.enqueue_parts, queue.add_parts,
  queue.waits_of_node, queue.fault_of_node, queue.enqueue_node, queue.queue_of_type
to "queue_role";
