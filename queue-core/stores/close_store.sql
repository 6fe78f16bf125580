-- store -> store: no new tenant is put into it by a rule.
-- $1 name
update queue.store s
set is_open = false
where s.name = $1
