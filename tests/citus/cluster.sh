#!/bin/sh
# Runs a Citus test cluster on this machine, with a coordinator and two nodes. The cluster runs as user postgres, in a directory that `wipe` removes.
#
#   cluster.sh start | stop | wipe                  CITUS_DIR (default /dev/shm/queue-citus), CITUS_PORT (of the coordinator, default 19700)
#   cluster.sh standby PORT TO                      starts a synchronous standby of the node at PORT, at port TO
#   cluster.sh kill PORT | cluster.sh promote PORT
#
# QUEUE_TEST_CITUS="postgres://postgres@127.0.0.1:19700/postgres?sslmode=disable" cargo test -p tests --test citus
set -eu
bin=${PG_BIN:-/usr/lib/postgresql/15/bin}
dir=${CITUS_DIR:-/dev/shm/queue-citus}
first=${CITUS_PORT:-19700}
ports="$first $((first + 1)) $((first + 2))"

as_postgres() { if [ "$(id -u)" = 0 ]; then su postgres -s /bin/sh -c "$*"; else sh -c "$*"; fi; }
ask() { "$bin/psql" -h 127.0.0.1 -p "$1" -U postgres -d postgres -v ON_ERROR_STOP=1 -Atqc "$2"; }
run() { as_postgres "$bin/pg_ctl -D $dir/$1 -l $dir/$1/log -w start >/dev/null"; }

case $1 in
start)
  mkdir -p "$dir"
  [ "$(id -u)" != 0 ] || chown postgres "$dir"
  for port in $ports; do
    if [ ! -d "$dir/$port" ]; then
      as_postgres "$bin/initdb -D $dir/$port -A trust -U postgres --no-sync >/dev/null"
      cat >> "$dir/$port/postgresql.conf" <<SETTINGS
port = $port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
shared_preload_libraries = 'citus'
citus.enable_statistics_collection = off
max_connections = 300
wal_level = logical
max_prepared_transactions = 300
max_wal_senders = 20
max_replication_slots = 20
max_worker_processes = 32
max_logical_replication_workers = 16
max_sync_workers_per_subscription = 4
max_wal_size = 4GB
SETTINGS
    fi
    run "$port"
    ask "$port" "create extension if not exists citus"
  done
  ask "$first" "select citus_set_coordinator_host('127.0.0.1', $first)"
  for port in $ports; do
    [ "$port" = "$first" ] || ask "$first" "select citus_add_node('127.0.0.1', $port)"
  done ;;
standby)
  as_postgres "$bin/pg_basebackup -h 127.0.0.1 -p $2 -U postgres -D $dir/$3 -R -X stream -c fast --no-sync"
  printf 'port = %s\nprimary_conninfo = %s\n' "$3" "'host=127.0.0.1 port=$2 user=postgres application_name=standby'" \
    >> "$dir/$3/postgresql.auto.conf"
  run "$3"
  ask "$2" "alter system set synchronous_standby_names = 'standby'"
  ask "$2" "select pg_reload_conf()" ;;
kill) as_postgres "$bin/pg_ctl -D $dir/$2 -m immediate -w stop >/dev/null" ;;
promote)
  ask "$2" "alter system set synchronous_standby_names = ''" || true
  as_postgres "$bin/pg_ctl -D $dir/$2 -w promote >/dev/null" ;;
stop)
  for port in "$dir"/[0-9]*; do
    as_postgres "$bin/pg_ctl -D $port -m fast -w stop >/dev/null" || true
  done ;;
wipe)
  "$0" stop
  rm -rf "$dir" ;;
esac
