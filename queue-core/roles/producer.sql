-- Producers enqueue jobs, query their status, and wait for them. They read no payloads and access no tables, because everything goes through
-- SECURITY DEFINER entry points. The other functions here have no privileges of their own: they select an entry point, or only calculate.
grant execute on function
  queue.enqueue, queue.enqueue_with, queue.enqueue_each, queue.try_enqueue,
  queue.insert_job, queue.producer_enqueue, queue.producer_enqueue_with, queue.producer_lock_keys, queue.lock_keys,
  queue.called_by, queue.is_trusted, queue.meet_lanes, queue.payload_limit, queue.unique_hash, queue.digest,
  queue.status, queue.wait, queue.look, queue.announce_waiter, queue.leave_waiter, queue.channel, queue.signal,
  queue.enqueue_flow, queue.link_flow, queue.refuse_node, queue.enqueue_parts, queue.add_parts,
  queue.waits_of_node, queue.fault_of_node, queue.enqueue_node, queue.queue_of_type
to "queue_role";
