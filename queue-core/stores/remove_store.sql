-- store -> nothing: it is not worked on any more.
-- $1 name
-- Safe: the constraints keep one in which a tenant is, or which one leaves.
delete from queue.store s
where s.name = $1
