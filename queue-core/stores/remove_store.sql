-- store -> nothing: removes a store from the registry.
-- $1 name
-- Safe: foreign keys keep a store that has a tenant or that a tenant is leaving.
delete from queue.store s
where s.name = $1
