-- store -> nothing: removes the store $1 from the registry.
-- $1 name
-- Safe: foreign keys prevent the removal of a store that has a tenant or that a tenant is leaving.
delete from queue.store s
where s.name = $1
