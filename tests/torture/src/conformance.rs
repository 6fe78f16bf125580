//! `cargo conformance`: runs every public operation against a server. With `--on`, starts the server itself, for example with a pooler or
//! a standby. See the crate `queue-conformance`.

use std::{fmt, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use queue_conformance::Options;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{
    pgbouncer::{PgBouncer, Pooling, carries_prepared},
    server::TestServer,
};

/// Run every public operation against a server, and report which operations work there
#[derive(Debug, Parser)]
#[command(name = "cargo conformance")]
struct Args {
    /// Start servers of this kind for the run
    #[arg(long, conflicts_with = "database_url")]
    on: Option<On>,
    #[command(flatten)]
    options: Options,
}

/// Servers that the run starts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// Single server.
    Plain,
    /// Server with a synchronous standby, which read-only operations use.
    Standby,
    /// Server behind a `PgBouncer` in session mode.
    PgbouncerSession,
    /// Server behind a `PgBouncer` in transaction mode, which the worker and waiters bypass.
    PgbouncerTransaction,
    /// Server whose database has unusual session defaults, such as time zone, output formats, planner settings and timeouts.
    Settings,
    /// Server with a login that has the same unusual defaults. The login is not a superuser and inherits no privileges. Its sessions use
    /// the role that is set for the login.
    Role,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Standby => "standby",
            Self::PgbouncerSession => "pgbouncer-session",
            Self::PgbouncerTransaction => "pgbouncer-transaction",
            Self::Settings => "settings",
            Self::Role => "role",
        })
    }
}

/// Entry point of the binary.
pub fn main() -> ExitCode {
    let Args { on, mut options } = Args::parse();
    let is_verbose = options.verbose;
    queue_conformance::main(is_verbose, async move {
        let Some(on) = on else {
            let setup = if options.database_url.is_some() { "given" } else { "embedded" };
            return queue_conformance::run(setup, &options).await;
        };
        match Servers::start(on).await? {
            Ok(servers) => {
                (options.database_url, options.direct_url, options.read_url) = servers.urls.clone().into();
                let holds = queue_conformance::run(&on.to_string(), &options).await;
                servers.end().await;
                holds
            }
            Err(why) => {
                tests::skipped(&format!("cargo conformance --on {on}"), &why);
                queue_conformance::report_skipped(&on.to_string(), &why);
                Ok(true)
            }
        }
    })
}

const NAME: &str = "conformance";

/// Settings with unusual values. Settings that forbid operations, such as `default_transaction_read_only`, are left out.
/// `default_transaction_isolation` is left out too: above read committed, `queue.wait` is rejected and concurrent updates fail with 40001.
const SETTINGS: [(&str, &str); 34] = [
    ("array_nulls", "off"),
    ("backslash_quote", "off"),
    ("bytea_output", "escape"),
    ("client_min_messages", "error"),
    ("cursor_tuple_fraction", "1"),
    ("datestyle", "German, DMY"),
    ("default_transaction_deferrable", "on"),
    ("enable_hashagg", "off"),
    ("enable_hashjoin", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_mergejoin", "off"),
    ("enable_partition_pruning", "off"),
    ("enable_sort", "off"),
    ("escape_string_warning", "off"),
    ("extra_float_digits", "-5"),
    ("from_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("intervalstyle", "sql_standard"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("join_collapse_limit", "1"),
    ("lc_messages", "C"),
    ("lock_timeout", "2s"),
    ("plan_cache_mode", "force_custom_plan"),
    ("quote_all_identifiers", "on"),
    ("row_security", "off"),
    ("search_path", "nowhere"),
    ("standard_conforming_strings", "off"),
    ("statement_timeout", "20s"),
    ("synchronous_commit", "off"),
    ("timezone", "Asia/Kathmandu"),
    ("transform_null_equals", "on"),
    ("work_mem", "64kB"),
];

/// Statements that create a login without privileges of its own. Each session of the login uses a role that has the required privileges.
const MEMBER: &str = "create role maker createrole; grant create, temporary on database conformance to maker;
    create role member login noinherit; grant maker to member; alter role member set role = 'maker'";

/// Servers that the program has started, with their URLs.
struct Servers {
    urls: [Option<String>; 3],
    /// Servers that stop when they are dropped.
    _running: Vec<TestServer>,
    pooler: Option<PgBouncer>,
}

impl Servers {
    /// Starts the servers. Returns the reason as the inner error if the servers are not available on this machine.
    async fn start(on: On) -> Result<std::result::Result<Self, String>> {
        let pooling = match on {
            On::Plain | On::Standby | On::Settings | On::Role => None,
            On::PgbouncerSession => Some(Pooling::Sessions),
            On::PgbouncerTransaction => Some(Pooling::Transactions),
        };
        if pooling == Some(Pooling::Transactions) && !carries_prepared() {
            return Ok(Err("there is no PgBouncer that keeps prepared statements apart, which 1.21 does".to_owned()));
        }
        let server = TestServer::start().await?;
        let mut admin = PgConnection::connect(&server.url("postgres")).await?;
        sqlx::raw_sql("create database conformance").execute(&mut admin).await?;
        prepare_sessions(on, &mut admin).await?;
        let direct = if on == On::Role { server.url(NAME).replace("postgres@", "member@") } else { server.url(NAME) };
        let (port, mut running) = (server.port(), vec![server]);
        if on == On::Standby {
            let standby = running[0].standby(port).await?;
            wait_for_standby(&mut admin).await?;
            let urls = [Some(direct), None, Some(standby.url(NAME))];
            running.push(standby);
            return Ok(Ok(Self { urls, _running: running, pooler: None }));
        }
        let Some(pooling) = pooling else {
            return Ok(Ok(Self { urls: [Some(direct), None, None], _running: running, pooler: None }));
        };
        // In session mode, each client occupies a server connection. The clients are the worker, the waiters and the pool.
        let mut settings = vec!["default_pool_size = 60"];
        if carries_prepared() {
            settings.push("max_prepared_statements = 200");
        }
        let Some(pooler) = PgBouncer::start("cargo conformance", port, pooling, &settings).await else {
            return Ok(Err("there is no PgBouncer".to_owned()));
        };
        let past = (pooling == Pooling::Transactions).then_some(direct);
        Ok(Ok(Self { urls: [Some(pooler.url(NAME)), past, None], _running: running, pooler: Some(pooler) }))
    }

    async fn end(self) {
        if let Some(pooler) = self.pooler {
            pooler.end().await;
        }
    }
}

/// Creates the login, and sets the unusual session defaults, if `on` requires them.
async fn prepare_sessions(on: On, admin: &mut PgConnection) -> Result<()> {
    let target = match on {
        On::Settings => "database conformance",
        On::Role => "role member",
        On::Plain | On::Standby | On::PgbouncerSession | On::PgbouncerTransaction => return Ok(()),
    };
    if on == On::Role {
        sqlx::raw_sql(MEMBER).execute(&mut *admin).await?;
    }
    for (setting, value) in SETTINGS {
        let set = format!("alter {target} set {setting} = '{value}'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *admin).await.with_context(|| setting.to_owned())?;
    }
    Ok(())
}

/// Makes every later commit wait for the standby.
async fn wait_for_standby(admin: &mut PgConnection) -> Result<()> {
    for statement in ["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(&mut *admin).await?;
    }
    for _ in 0..300 {
        let waits = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        if sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *admin).await? == 1 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("commits do not wait for the standby")
}
