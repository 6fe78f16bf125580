//! Database for one measurement of one of the compared libraries. The database is created empty and dropped afterwards, so that
//! measurements do not affect each other.

use std::str::FromStr as _;

use anyhow::Context as _;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// Server on which databases are created.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    options: PgConnectOptions,
}

/// Database used by a single measurement.
#[derive(Debug)]
pub(crate) struct BenchDatabase {
    server: Server,
    name: String,
    /// Pool of the benchmark and its producers.
    pub(crate) pool: PgPool,
    /// URL for worker processes.
    pub(crate) url: String,
}

/// Maximum number of connections: eight for producers, one for the benchmark's own queries, and one spare.
const MOST_CONNECTIONS: u32 = 10;

/// Creates a pool that does not test connections before use, because a test would cost a round trip.
pub(crate) fn pool(url: &str, most: u32) -> anyhow::Result<PgPool> {
    let options = PgConnectOptions::from_str(url)?.application_name("queue-peers").disable_statement_logging();
    Ok(PgPoolOptions::new().max_connections(most).test_before_acquire(false).connect_lazy_with(options))
}

impl Server {
    pub(crate) fn at(url: &str) -> anyhow::Result<Self> {
        Ok(Self { options: PgConnectOptions::from_str(url)?.application_name("queue-peers").disable_statement_logging() })
    }

    /// Returns the server's version and its relevant settings as a line of text.
    pub(crate) async fn describe(&self) -> anyhow::Result<String> {
        const DESCRIBE: &str = "
            select format('PostgreSQL %s, shared_buffers %s, max_wal_size %s, fsync %s, synchronous_commit %s',
              current_setting('server_version'), current_setting('shared_buffers'), current_setting('max_wal_size'),
              current_setting('fsync'), current_setting('synchronous_commit'))";
        let mut connection = self.options.connect().await.context("cannot connect to the server")?;
        Ok(sqlx::query_scalar(DESCRIBE).fetch_one(&mut connection).await?)
    }

    /// Creates an empty database. Then runs a checkpoint if permitted, so that a checkpoint during the measurement is unlikely.
    pub(crate) async fn database(&self) -> anyhow::Result<BenchDatabase> {
        let name = format!("queue_peers_{}", std::process::id());
        self.run(&format!("drop database if exists {name} with (force)")).await?;
        self.run(&format!("create database {name}")).await?;
        let _ = self.run("checkpoint").await;
        let url = self.options.clone().database(&name).to_url_lossy().to_string();
        Ok(BenchDatabase { server: self.clone(), name, pool: pool(&url, MOST_CONNECTIONS)?, url })
    }

    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await?;
        Ok(())
    }
}

impl BenchDatabase {
    /// Returns the number of WAL bytes that the whole server has written so far.
    pub(crate) async fn wal(&self) -> anyhow::Result<i64> {
        const WAL: &str = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        Ok(sqlx::query_scalar(WAL).fetch_one(&self.pool).await?)
    }

    pub(crate) async fn drop(self) -> anyhow::Result<()> {
        self.pool.close().await;
        self.server.run(&format!("drop database if exists {} with (force)", self.name)).await
    }
}
