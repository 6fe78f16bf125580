//! Tests the CLI's error messages for invalid database URLs, schema names and settings.

use super::{Fixture, Row};

pub(super) const ADDRESSES: &[Row] = &[
    ("stats --schema", 2, "a value is required for '--schema <NAME>' but none was supplied"),
    ("stats --database-url nonsense", 2, "the database address is invalid | expected `postgres://user:password@host:5432/n"),
    ("stats --database-url http://x/d", 2, "the database address is invalid | expected `postgres://user:password@host:5432"),
    ("stats --database-url mysql://x/d", 2, "the database address is invalid | expected `postgres://user:password@host:543"),
    ("stats --database-url postgres://postgres@127.0.0.1:1/d", 1, "cannot connect to the database `d` at 127.0.0.1:1: the database"),
    ("stats --database-url postgres://postgres@127.0.0.1:99999/d", 2, "the database address is invalid | expected `postgres://user"),
    ("stats --database-url postgres://postgres@127.0.0.1:x/d", 2, "the database address is invalid | expected `postgres://user:pas"),
    ("stats --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
    ("stats --schema ''", 2, "`` is not a valid schema name: 1 to 48 of the characters A-Z a-z 0-9 _ . : -"),
    ("stats --schema queue.job", 1, "the schema `queue.job` holds no job queue | run `test-cli migrate --schema queue.job`, or"),
    ("stats --schema {long}", 2, "xxxx..` is not a valid schema name: 1 to 48 of the"),
    ("stats --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("stats --log 'a=b=c'", 2, "invalid log filter: error parsing | write it like `info` or `queue_worker=debug,sqlx"),
    ("stats --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("stats --direct-url nonsense", 2, "the database address is invalid | expected `postgres://user:password@host:5432/nam"),
    ("stats --read-url postgres://postgres@127.0.0.1:1/d", 1, "cannot connect to the database `d` at 127.0.0.1:1: the database is"),
    ("stats --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("stats --config .", 2, "cannot read the settings file .: Is a directory (os error 21)"),
    ("stats --database-url {nodb}", 1, "database \"nosuchdb\" does not exist | `postgres://user:password@host:5432/NAME`"),
    ("stats --database-url {nouser}", 1, "role \"nosuchuser\" does not exist | `postgres://USER:password@host:5432/name`"),
    ("stats --database-url {nopass}", 1, "password authentication failed | `postgres://USER:PASSWORD@host:5432/name` | `%40`"),
    ("stats --database-url {noentry}", 1, "no pg_hba.conf entry | `postgres://USER:password@HOST:5432/NAME`"),
    ("stats --database-url {refused}", 1, "cannot connect to the database `d` at 127.0.0.1:1: | `postgres://user:password@HOST:PORT/name`"),
    ("stats --database-url {mode}", 2, "invalid database URL: sslmode must be one of disable, allow, prefer, require,"),
    ("stats --database-url {attrs}", 2, "invalid database URL: target_session_attrs must be any, read-write,"),
    ("stats --database-url {root}", 2, "invalid database URL: sslrootcert names the file `/nofile`, which cannot be"),
    ("stats --database-url {unknown}", 2, "invalid database URL: it contains | known parameters: host, port, dbname, user,"),
    ("stats --embedded", 2, "a database URL and the embedded PostgreSQL are both set | omit DATABASE_URL, or `--embedded`"),
    ("list --schema older", 1, "the schema `older` is at version 20, older than | run `test-cli migrate --schema older`, or call"),
    ("run --schema older", 1, "the schema `older` is at version 20, older than | run `test-cli migrate --schema older`, or call"),
    ("run --schema newer", 1, "the schema `newer` is at version 9999, which works | this one is older and knows"),
];

pub(super) const SCHEMAS: &[Row] = &[
    ("migrate up", 2, "unrecognized subcommand 'up'"),
    ("migrate --schema 'a\"b'", 2, "`a\\\"b` is not a valid schema name: 1 to 48 of the characters A-Z a-z 0-9 _ . : -"),
    ("migrate --schema pg_x", 2, "the schema is `pg_x` | it must be none of PostgreSQL's own, which begin with `pg_` or are"),
    ("migrate --schema information_schema", 2, "the schema is `information_schema` | it must be none of PostgreSQL's own, which"),
    ("migrate --dry-run", 2, "unexpected argument '--dry-run' found"),
    ("migrate print --schema 'x y'", 2, "`x y` is not a valid schema name: 1 to 48 of the characters A-Z a-z 0-9 _ . : -"),
    ("migrate rollback", 2, "unrecognized subcommand 'rollback'"),
    ("roles --print --prefix 'a b'", 2, "`a b_producer` is not a valid role: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("roles --prefix {long}", 2, "xxxx..` is not a valid role: 1 to"),
    ("roles --producer", 2, "a value is required for '--producer <ROLE>' but none was supplied"),
    ("roles --producer mailer", 2, "required arguments | --queue <QUEUE>"),
    ("roles --queue mail", 2, "required arguments | --producer <ROLE>"),
    ("roles --producer mailer --queue 'a b'", 2, "`a b` is not a valid queue: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("roles --producer 'a b' --queue mail", 2, "`a b` is not a valid role: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("roles --prefix x --producer mailer --queue mail", 2, "the argument '--prefix <NAME>' cannot be used with '--producer <ROLE>'"),
    ("roles --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("roles reader", 2, "unexpected argument 'reader' found"),
    ("doctor --ignore nosuch", 2, "for '--ignore <KIND>' | expected a kind of finding like `no_worker`; docs/DOCTOR.md lists all"),
    ("doctor --ignore", 2, "a value is required for '--ignore <KIND>' but none was supplied"),
    ("doctor --transaction 5", 2, "for '--transaction <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration"),
    ("doctor --dead-rows -1", 2, "for '--dead-rows <N>' | expected a whole number from 0 to 4294967295"),
    ("doctor --dead-rows many", 2, "for '--dead-rows <N>' | expected a whole number from 0 to 4294967295"),
    ("doctor --trusted-network 10.0.0.0", 2, "for '--trusted-network <CIDR>' | expected a network like `10.0.0.0/8`"),
    ("doctor --trusted-network 10.0.0.0/40", 2, "for '--trusted-network <CIDR>' | a network must end with its prefix length,"),
    ("doctor --trusted-network intranet/8", 2, "for '--trusted-network <CIDR>' | a network must begin with an address, as `10.0.0.0/8`"),
    ("doctor --schema nowhere", 2, "broken: the schema `nowhere` holds no job queue; run `test-cli migrate --schema nowhere`, or"),
    ("doctor --warn", 2, "unexpected argument '--warn' found"),
    ("doctor --database-url {refused}", 2, "broken: the database is out of reach: cannot connect to the database `d` at"),
    ("migrate --schema newer", 1, "the schema `newer` is at version 9999, which works | this one is older and knows"),
    ("migrate status --schema newer", 1, "the schema `newer` is at version 9999, | this one is older and knows"),
    ("roles --producer pg_x --queue default", 1, "the database refused: role name \"pg_x\" is reserved (42939)"),
    ("roles --jsn", 2, "unexpected argument '--jsn' found | a similar argument exists: '--json'"),
    ("roles --print --producer x --queue ''", 2, "`` is not a valid queue: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("migrate --database-url {refused}", 1, "cannot connect to the database `d` at 127.0.0.1:1: the database is unreachable:"),
    ("migrate --database-url {nodb}", 1, "cannot connect to the database `nosuchdb` at | database \"nosuchdb\" does not exist"),
    ("doctor --database-url {nodb}", 2, "broken: the database is out of reach: cannot connect to the database `nosuchdb` at"),
    ("doctor --strict=yes", 2, "unexpected value 'yes' for '--strict' found; no more were expected"),
];

#[tokio::test]
async fn an_unreachable_database_is_named() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ADDRESSES);
    fixture.db.finish().await;
}

#[tokio::test]
async fn a_store_of_another_release_is_named() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, SCHEMAS);
    fixture.db.finish().await;
}
