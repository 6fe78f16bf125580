-- Revokes all privileges on a store from PUBLIC. The owner's privileges and the privileges granted to roles stay. Runs after each
-- migration, because PUBLIC has default privileges on new objects.
revoke all on all tables in schema "queue_schema" from public;
revoke all on all sequences in schema "queue_schema" from public;
revoke all on all routines in schema "queue_schema" from public;
revoke all on type queue.options, queue.removed_entry, queue.caller, queue.gather_sum, queue.edge_decision, queue.listed from public;
revoke all on schema "queue_schema" from public;
