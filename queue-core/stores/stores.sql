-- Returns one row for each store, sorted by name, with the number of tenants in the store.
select s.name, s.database, s.schema, s.is_open, (select count(*) from queue.place p where p.store = s.name) as tenants
from queue.store s
order by s.name
