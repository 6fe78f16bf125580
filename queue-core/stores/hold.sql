-- nothing -> scheduled | blocked: holds the ordering keys $1 for a tenant that is moving to this store. Runs in the store's schema, not in
-- the schema of the placement tables.
-- $1 hashes of the keys  $2 metadata of the jobs that hold the keys, as a JSON object
-- Safe: the transaction has locked or updated the tenant's row (arriving.sql, arrived.sql). These statements find the row only if the
-- tenant has not yet arrived in this move. A delayed step of an earlier move therefore holds no keys.
select queue.hold_keys($1::bigint[], $2::jsonb)
