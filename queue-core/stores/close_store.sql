-- store -> store: closes the store $1. New tenants are not assigned to a closed store.
-- $1 name
update queue.store s
set is_open = false
where s.name = $1
