-- store -> store: closes a store, so that the rules assign no new tenant to it.
-- $1 name
update queue.store s
set is_open = false
where s.name = $1
