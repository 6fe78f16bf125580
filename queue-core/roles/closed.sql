-- Closes a store to everybody but its owner, and those whom the owner has let in. Run after each migration: whatever is new is open to all.
revoke all on all tables in schema "queue_schema" from public;
revoke all on all sequences in schema "queue_schema" from public;
revoke all on all routines in schema "queue_schema" from public;
revoke all on type queue.options, queue.taken, queue.caller, queue.gather_sum, queue.decided, queue.listed from public;
revoke all on schema "queue_schema" from public;
