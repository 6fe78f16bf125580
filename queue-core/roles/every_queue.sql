-- Permits a producer role to enqueue into every queue.
grant execute on function queue.any_queue to "queue_role";
