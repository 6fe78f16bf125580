//! Servers of a run: a given server, an embedded server, or servers that the run starts with a pooler or a standby.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail};
use queue_worker::{
    Database, OnStandby,
    embedded::{self, Embedded, EmbeddedOptions},
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{
    pgbouncer::{PgBouncer, Pooling, carries_prepared},
    server::TestServer,
};

use super::cluster::{Cluster, with_distributed_schemas};

/// Servers that the run starts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum On {
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
    /// Server on which the login has the same unusual defaults. The login is not a superuser and inherits no privileges. Its sessions use
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

/// Servers and connections of a run.
#[derive(Debug)]
pub(super) struct Setup {
    name: String,
    pub(super) url: String,
    pub(super) direct_url: Option<String>,
    pub(super) database: Database,
    /// Standby for read-only operations, or `None` if the run has no standby.
    pub(super) read: Option<Database>,
    /// Citus cluster, or `None` if the stores are not distributed.
    pub(super) cluster: Option<Cluster>,
    /// Started servers, which stop when the run ends.
    servers: Vec<Started>,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held to keep the servers running")]
enum Started {
    Embedded(Embedded),
    Server(TestServer),
    Pooler(PgBouncer),
}

const NAME: &str = "conformance";

/// Settings with unusual values. Settings that forbid operations are left out, such as `default_transaction_read_only`.
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

/// Statements that create a login that has privileges only as its role. The role is set at the start of each session.
const MEMBER: &str = "create role maker createrole; grant create, temporary on database conformance to maker;
    create role member login noinherit; grant maker to member; alter role member set role = 'maker'";

/// Pool size. The handlers share the pool with the operations under test.
const POOL_SIZE: u32 = 10;

impl Setup {
    /// Uses a given server: its URL, its URL without a pooler, and the URL of its standby. `citus` requests distributed stores.
    pub(super) async fn given([url, direct_url, read_url]: [Option<&str>; 3], citus: bool) -> Result<Self> {
        let led = |url: &str| if citus { with_distributed_schemas(url) } else { url.to_owned() };
        let url = url.map(led).unwrap_or_default();
        let mut setup = Self::at("given", url, direct_url.map(led), read_url, Vec::new()).await?;
        let past = setup.direct_url.as_ref().unwrap_or(&setup.url);
        setup.cluster = Cluster::find(past, setup.database.direct()).await?;
        if citus && setup.cluster.is_none() {
            bail!("--citus requires a database with Citus");
        }
        Ok(setup)
    }

    /// Starts an embedded server, which is removed afterwards.
    pub(super) async fn embedded() -> Result<Self> {
        let server = embedded::start(EmbeddedOptions { durable: true, ..EmbeddedOptions::temporary() }).await?;
        let url = server.url().to_owned();
        Self::at("embedded", url, None, None, vec![Started::Embedded(server)]).await
    }

    /// Starts the servers for the run. Returns the reason as the inner error if the servers are not available on this machine.
    pub(super) async fn on(on: On) -> Result<std::result::Result<Self, String>> {
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
        if on == On::Role {
            sqlx::raw_sql(MEMBER).execute(&mut admin).await?;
        }
        let target = match on {
            On::Settings => Some("database conformance"),
            On::Role => Some("role member"),
            On::Plain | On::Standby | On::PgbouncerSession | On::PgbouncerTransaction => None,
        };
        for (target, (setting, value)) in target.into_iter().flat_map(|target| SETTINGS.map(|set| (target, set))) {
            let set = format!("alter {target} set {setting} = '{value}'");
            sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.with_context(|| setting.to_owned())?;
        }
        let direct = if on == On::Role { server.url(NAME).replace("postgres@", "member@") } else { server.url(NAME) };
        let (name, mut servers) = (on.to_string(), vec![Started::Server(server.clone())]);
        if on == On::Standby {
            let standby = server.standby(server.port()).await?;
            wait_for_standby(&mut admin).await?;
            let read = standby.url(NAME);
            servers.push(Started::Server(standby));
            return Ok(Ok(Self::at(&name, direct, None, Some(&read), servers).await?));
        }
        let Some(pooling) = pooling else {
            return Ok(Ok(Self::at(&name, direct, None, None, servers).await?));
        };
        // In session mode each client occupies a server connection: the worker, the waiters and the pool.
        let mut settings = vec!["default_pool_size = 60"];
        if carries_prepared() {
            settings.push("max_prepared_statements = 200");
        }
        let Some(pooler) = PgBouncer::start("cargo conformance", server.port(), pooling, &settings).await else {
            return Ok(Err("there is no PgBouncer".to_owned()));
        };
        let url = pooler.url(NAME);
        servers.push(Started::Pooler(pooler));
        let past = (pooling == Pooling::Transactions).then_some(direct);
        Ok(Ok(Self::at(&name, url, past, None, servers).await?))
    }

    async fn at(name: &str, url: String, direct_url: Option<String>, read_url: Option<&str>, servers: Vec<Started>) -> Result<Self> {
        let mut options = Database::options().url(&url).pool_size(POOL_SIZE).on_standby(OnStandby::Exit);
        if let Some(direct) = &direct_url {
            options = options.direct_url(direct);
        }
        let database = options.connect().await?;
        let read = match read_url {
            Some(url) => Some(Database::connect(url).await.context("the server of --read-url")?),
            None => None,
        };
        Ok(Self { name: name.to_owned(), url, direct_url, database, read, cluster: None, servers })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version that the server reports.
    pub(super) async fn server(&self) -> Result<String> {
        let version: String = sqlx::query_scalar("select version()").fetch_one(self.database.pool()).await?;
        let others = "select string_agg(extname || ' ' || extversion, ', ' order by extname) from pg_extension where extname <> 'plpgsql'";
        let others: Option<String> = sqlx::query_scalar(others).fetch_one(self.database.pool()).await.unwrap_or_default();
        let cluster = self.cluster.as_ref().map(|cluster| cluster.description().to_owned());
        Ok([Some(version), others, cluster].into_iter().flatten().collect::<Vec<_>>().join("; "))
    }

    pub(super) async fn close(self) {
        if let Some(cluster) = self.cluster {
            cluster.close().await;
        }
        if let Some(read) = self.read {
            read.close().await;
        }
        self.database.close().await;
        for held in self.servers.into_iter().rev() {
            if let Started::Pooler(pooler) = held {
                pooler.end().await;
            }
        }
    }
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
