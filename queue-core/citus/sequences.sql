-- Table that makes Citus move the sequences below with the store. Citus moves a sequence only together with a table that references it,
-- and no other table references these sequences.
create table queue.sequence_owner (
  one     boolean  not null default true,
  id      bigint   not null default nextval('queue.id_seq'),
  pause   bigint   not null default nextval('queue.pause_seq'),
  ticket  bigint   not null default nextval('queue.ticket_seq'),
  beside  bigint   not null default nextval('queue.beside_seq'),
  key     bigint   not null default nextval('queue.key_seq'),
  permit  bigint   not null default nextval('queue.permit_seq'),
  audit   bigint   not null default nextval('queue.audit_seq'),
  constraint numbering_pkey primary key (one)
);
