-- Additional tables of a store on Citus. `place` contains the node that last wrote to the store, and the number of moves of the store to
-- another node. `fence` is always empty. Statements access `fence` to make Citus treat them as writes, or to check that the store is on the
-- current node.
create table queue.place (
  one      boolean  not null default true,
  node     integer  not null default -1,  -- group of the node, as in pg_dist_node
  arrivals bigint   not null default 0,
  constraint place_pkey primary key (one),
  constraint place_is_one check (one)
);
create table queue.fence (
  nothing  integer  not null,
  constraint fence_pkey primary key (nothing)
);
-- Notifications of prepared transactions, to be sent after the commit. Citus uses prepared transactions for writes to several nodes, and a
-- prepared transaction cannot notify.
create table queue.notification (
  id       bigint  not null,
  channel  text    not null,
  payload  text    not null,
  constraint notification_pkey primary key (id)
);
insert into queue.place (one) values (true);
