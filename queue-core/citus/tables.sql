-- Additional tables of a store on Citus. One contains the node of the last write, with the number of arrivals. Another one is always empty, for
-- statements that have to count as writes.
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
-- Notifications to be sent after the commit, because a prepared transaction, such as one over several nodes, must not notify.
create table queue.told (
  id       bigint  not null,
  channel  text    not null,
  payload  text    not null,
  constraint told_pkey primary key (id)
);
insert into queue.place (one) values (true);
