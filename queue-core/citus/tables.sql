-- What a store has besides on Citus: where it was written last, and by how many arrivals; and a table in which nothing ever is, for statements that
-- are to count as writes.
create table queue.place (
  one      boolean  not null default true,
  node     integer  not null default -1,  -- the group of the node, as in pg_dist_node
  arrivals bigint   not null default 0,
  constraint place_pkey primary key (one),
  constraint place_is_one check (one)
);
create table queue.fence (
  nothing  integer  not null,
  constraint fence_pkey primary key (nothing)
);
-- What is to be told once it is committed: nobody may notify in a transaction that is prepared, as those of several nodes are.
create table queue.told (
  id       bigint  not null,
  channel  text    not null,
  payload  text    not null,
  constraint told_pkey primary key (id)
);
insert into queue.place (one) values (true);
