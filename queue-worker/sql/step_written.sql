-- step, looked at: what came of a transaction that journaled the step $2 of the job $1, whose commit was not answered; true if it happened, null
-- if it is under way.
-- $1 id  $2 name  $3 attempt  $4 the transaction's number
-- Safe: reads only. What was committed after we began to look is not seen yet: it is asked again. A number that a failover gave to another
-- has written no such row, and that is not known ever.
select case
  when pg_xact_status($4::text::xid8) = 'aborted' then false
  when pg_xact_status($4::text::xid8) = 'committed'
    and exists (select from queue.step s where s.id = $1 and s.name = $2 and s.attempt = $3) then true
end
