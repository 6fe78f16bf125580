-- Returns the outcome of a transaction that journaled the step $2 of the job $1, and whose commit response was lost. The outcome is true
-- if committed, false if aborted, null if unknown.
-- $1 id  $2 name  $3 attempt  $4 id of the transaction
-- Safe: read-only. If the transaction commits after this statement's snapshot, the outcome is unknown, and the caller retries. A failover
-- may reassign the id to another transaction. That transaction has not written the step's row, so the outcome stays unknown.
select case
  when pg_xact_status($4::text::xid8) = 'aborted' then false
  when pg_xact_status($4::text::xid8) = 'committed'
    and exists (select from queue.step s where s.id = $1 and s.name = $2 and s.attempt = $3) then true
end
