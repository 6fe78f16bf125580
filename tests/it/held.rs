//! Tests rows locked by another session. A statement processes all other rows without waiting for the locked rows. Once the locks are
//! released, the statement processes these rows as well.
//!
//! A case consists of SQL. Jobs and leases have names, which replace their ids and tokens in results and rows.

mod jobs;
mod leases;
mod pruned;
mod workers;

use queue_core::Store;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgRow};
use tests::TestDb;

/// Test case: a statement, and the locks that another session holds while the statement runs.
pub(crate) struct Case {
    /// SQL that creates the rows.
    given: &'static str,
    /// SQL that locks some of the rows, in a transaction that stays open.
    held: &'static str,
    /// The tested statement.
    act: &'static str,
    /// Arguments and expected result of each call of `act` while the rows are locked.
    meanwhile: &'static [(&'static str, &'static str)],
    /// Expected result of the first call in `after` while the same call by another session is uncommitted.
    beside: Option<&'static str>,
    /// SQL that runs after the locks are released and before `after`.
    then: &'static str,
    /// Arguments and expected result of each call of `act` after the locks are released.
    after: &'static [(&'static str, &'static str)],
    /// A query, its expected rows after `meanwhile`, and its expected rows after `after`.
    left: (&'static str, &'static str, &'static str),
}

/// SQL that defines the names of jobs and leases, and functions that create the rows of most cases.
const NAMES: &str = r#"
create table named (name text primary key, value text not null);
create function job(text) returns bigint language sql as 'select value::bigint from named where name = $1';
create function jobs(variadic text[]) returns bigint[] language sql as 'select array(select job(n) from unnest($1) n)';
create function token(text) returns uuid immutable language sql as 'select encode(substring(sha256($1::bytea), 1, 16), ''hex'')::uuid';
-- Enqueues a job with these options.
create function put(name text, options jsonb default '{}') returns void language sql as
  $$ insert into named select name, queue.enqueue('do', '{"act": {"Ok": ""}}', options) $$;
-- Registers the worker.
create function live() returns void language sql as $$
  insert into queue.worker (id, expires_at, name, host, pid, version, queues, paused_seen)
  values (token('worker'), now() + interval '1 hour', 'worker', '', 1, '', '{}', 9223372036854775807) $$;
-- Claims these jobs under one lease.
create function lease(lease text, variadic jobs text[]) returns void language sql as $$
  insert into named select lease, token(lease);
  with gone as (delete from queue.ready where id = any (jobs(variadic jobs)) returning id, lane)
  insert into queue.lease (token, worker, lane, ids, attempts, crashes)
  select token(lease), token('worker'), min(lane), array_agg(id order by id), array_agg(1::smallint), array_agg(0::smallint) from gone $$;
-- Completes a ready job.
create function over(name text) returns void language sql as $$
  with gone as (delete from queue.ready where id = job(name) returning id)
  insert into queue.done (id, finished_at, ran_ms, attempts, output) select id, now(), 1, 1, '7' from gone $$;
-- Parks a ready job.
create function park(name text, waits_for text) returns void language sql as $$
  with gone as (delete from queue.ready where id = job(name) returning id, lane)
  insert into queue.parked (id, lane, attempts, crashes, since, names) select id, lane, 0, 0, now(), array[waits_for] from gone $$;
-- Deletes a job and its entry, but no rows that refer to the job.
create function lose(name text) returns void language sql as $$
  delete from queue.ready where id = job(name);
  delete from queue.parked where id = job(name);
  delete from queue.lease where job(name) = any (ids);
  delete from queue.job where id = job(name) $$;
"#;

impl Case {
    /// Values of the fields that a case omits.
    pub(crate) const NONE: Self =
        Self { given: "", held: "", act: "", meanwhile: &[], beside: None, then: "", after: &[], left: ("select", "", "") };

    pub(crate) async fn check(&self) {
        let db = TestDb::new().await;
        let (mut on, mut holder) = (connect(&db).await, connect(&db).await);
        run(&mut on, NAMES).await;
        run(&mut on, self.given).await;
        let is_file = self.act.starts_with("--");
        let statement = if is_file { Store::default().sql(self.act) } else { self.act };
        for session in [&mut on, &mut holder] {
            run(session, &format!("prepare act as {statement}\n")).await;
            // A statement that does not set its own lock timeout fails instead of waiting for a lock forever.
            run(session, "set statement_timeout = '20s'").await;
        }
        run(&mut holder, &format!("begin; {}", self.held)).await;
        self.calls(&mut on, self.meanwhile, "while it is locked").await;
        assert_eq!(text(&mut on, self.left.0).await, self.left.1, "what is left while it is locked");
        run(&mut holder, "rollback").await;
        run(&mut on, self.then).await;
        let mut after = self.after;
        if let (Some(beside), [first, rest @ ..]) = (self.beside, self.after) {
            run(&mut holder, "begin").await;
            self.calls(&mut holder, &[*first], "before it is committed").await;
            self.calls(&mut on, &[(first.0, beside)], "beside another call").await;
            run(&mut holder, "commit").await;
            after = rest;
        }
        self.calls(&mut on, after, "once it is free").await;
        if !self.after.is_empty() {
            assert_eq!(text(&mut on, self.left.0).await, self.left.2, "what is left once it is free");
        }
        db.finish().await;
    }

    async fn calls(&self, on: &mut PgConnection, calls: &[(&str, &str)], when: &str) {
        for (arguments, answer) in calls {
            let call = if arguments.is_empty() { "execute act".to_owned() } else { format!("execute act({arguments})") };
            assert_eq!(text(on, &call).await, *answer, "{call} {when}");
        }
    }
}

/// Runs a query and formats its rows, with ids and tokens replaced by names. Values are separated by spaces, and rows by commas. A
/// database error is formatted as its SQLSTATE.
pub(crate) async fn text(on: &mut PgConnection, query: &str) -> String {
    let names: Vec<(String, String)> = sqlx::query_as("select name, value from named").fetch_all(&mut *on).await.unwrap();
    let value = |row: &PgRow, at| row.try_get_raw(at).unwrap().as_str().map_or("-".to_owned(), str::to_owned);
    let rows = match sqlx::raw_sql(AssertSqlSafe(query.to_owned())).fetch_all(on).await {
        Ok(rows) => rows,
        Err(sqlx::Error::Database(error)) => return error.code().unwrap_or_default().into_owned(),
        Err(error) => panic!("{query}: {error}"),
    };
    let rows = rows.iter().map(|row| (0..row.len()).map(|at| value(row, at)).collect::<Vec<_>>().join(" "));
    let rows = rows.collect::<Vec<_>>().join(", ");
    names.iter().fold(rows, |rows, (name, value)| rows.replace(value, name))
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn run(on: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(on).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Generates one test per case.
macro_rules! cases {
    ($($(#[$about:meta])* fn $name:ident { $($field:ident: $value:expr),+ $(,)? })+) => {$(
        $(#[$about])*
        #[tokio::test]
        async fn $name() {
            $crate::held::Case { $($field: $value,)+ ..$crate::held::Case::NONE }.check().await;
        }
    )+};
}
use cases;

/// Includes a statement of the worker by its file name.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../queue-worker/sql/", $name, ".sql"))
    };
}
use sql;
