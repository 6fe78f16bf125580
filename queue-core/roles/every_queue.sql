-- Permits enqueues into every queue.
grant execute on function queue.any_queue to "queue_role";
