-- nothing -> scheduled | blocked: holds the ordering keys $1 for a tenant that moves to this store. Runs in the store's schema, not in the
-- schema of the placement tables.
-- $1 hashes of the keys  $2 metadata of the jobs that hold the keys, as a JSON object
-- Safe: runs in a transaction that has locked the tenant's row before the tenant arrives (arriving.sql, arrived.sql), so a late step of an
-- earlier move holds no keys.
select queue.hold_keys($1::bigint[], $2::jsonb)
