-- Revokes all default privileges on a store, except those of the owner and of roles granted by the owner. Runs after each migration, because new
-- objects are public.
revoke all on all tables in schema "queue_schema" from public;
revoke all on all sequences in schema "queue_schema" from public;
revoke all on all routines in schema "queue_schema" from public;
revoke all on type queue.options, queue.taken, queue.caller, queue.gather_sum, queue.decided, queue.listed from public;
revoke all on schema "queue_schema" from public;
