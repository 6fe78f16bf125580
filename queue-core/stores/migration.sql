-- Tables that record a group of stores and the store of each tenant. The tables are in a separate schema, in the home database and in
-- every database with stores. The home database uses `store` and `place`, and the databases with stores use `tenant` and `leaving`. This
-- file can be applied repeatedly.
--
--   store    written by operators (add, open, close, remove)
--   place    written once when a tenant is assigned to its first store, and afterwards only by moves
--   tenant   in the store's own database; an enqueue for the tenant locks the row, and a move changes the row
--   leaving  in the store's own database; written by a move before the move changes the row of `tenant`

create table if not exists queue.store (
  name      text         not null,
  database  text         not null,
  schema    text         not null,
  is_open   boolean      not null default true,
  added_at  timestamptz  not null default now(),
  constraint store_added_at_in_range check (added_at >= '1970-01-01+00' and added_at < '10000-01-01+00'),
  constraint store_pkey primary key (name),
  constraint store_is_one unique (database, schema)
);

-- Store of each tenant and, during a move, the store that the tenant is leaving. Each move has a new epoch.
create table if not exists queue.place (
  key        text         not null,
  store      text         not null,
  epoch      bigint       not null default 1,
  leaves     text,
  is_fenced  boolean      not null default false,
  placed_at  timestamptz  not null default now(),
  moved_at   timestamptz,
  constraint place_times_in_range check (least(placed_at, moved_at) >= '1970-01-01+00' and greatest(placed_at, moved_at) < '10000-01-01+00'),
  constraint place_pkey primary key (key),
  constraint place_store foreign key (store) references queue.store,
  constraint place_leaves foreign key (leaves) references queue.store,
  constraint place_leaves_another check (leaves <> store),
  constraint place_key_is_short check (length(key) between 1 and 200)
);

create index if not exists place_by_store on queue.place (store);
create index if not exists place_moving on queue.place (leaves) where leaves is not null;

-- One row for each tenant and each store in this database that the tenant is in, is moving to, or has left. The store is identified by its
-- schema. `epoch` is the last recorded epoch, and `here` is true if the tenant's jobs can be enqueued into the store in that epoch.
create table if not exists queue.tenant (
  schema  text     not null,
  key     text     not null,
  epoch   bigint   not null,
  here    boolean  not null,
  constraint tenant_pkey primary key (schema, key)
);

-- One row for each pair of a tenant and a store from which the tenant is or was being moved (announce.sql). Until the time `until`, no
-- transaction that enqueues for the tenant can begin in the store, so the move waits only for transactions that have already begun.
create table if not exists queue.leaving (
  schema  text         not null,
  key     text         not null,
  until   timestamptz  not null,
  constraint leaving_until_in_range check (until >= '1970-01-01+00' and until < '10000-01-01+00'),
  constraint leaving_pkey primary key (schema, key)
);
