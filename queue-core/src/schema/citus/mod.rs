//! A store in a distributed schema of a Citus cluster: all its tables are on one node, which may change. On that node its statements name the shards
//! themselves, and cost what they cost on plain PostgreSQL; on the others its functions lead there. Knows nothing of jobs.

mod doors;
mod home;
mod statements;

use std::sync::{Mutex, PoisonError};

use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, postgres::PgConnectOptions};

pub(super) use self::home::Home;
use self::{home::here, statements::statements};
use crate::schema::store::Store;

/// Whether the schema is a distributed one.
pub(super) async fn is_distributed<C>(connection: &mut C, store: Store) -> sqlx::Result<bool>
where
    for<'c> &'c mut C: PgExecutor<'c>,
{
    const HAS_CITUS: &str = "select pg_catalog.to_regclass('pg_catalog.pg_dist_schema') is not null";
    const IS_DISTRIBUTED: &str = "select exists (select from pg_catalog.pg_dist_schema d join pg_catalog.pg_namespace n on n.oid = d.schemaid \
        where n.nspname = $1)";
    Ok(sqlx::query_scalar(HAS_CITUS).fetch_one(&mut *connection).await?
        && sqlx::query_scalar(IS_DISTRIBUTED).bind(store.schema()).fetch_one(connection).await?)
}

/// Before the first migration of a distributed store.
pub(super) async fn prepare(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    const IS_THERE: &str = "select pg_catalog.to_regnamespace($1) is not null";
    apply_each(connection, "set local citus.multi_shard_modify_mode = 'sequential'; set local check_function_bodies = off").await?;
    // Who owns the store need not be one who may make schemas.
    if sqlx::query_scalar(IS_THERE).bind(here(store.schema())).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let made = format!("set local citus.enable_schema_based_sharding = off; create schema {}", here(store.schema()));
    apply_each(connection, &made).await?;
    apply_each(connection, "set local citus.enable_schema_based_sharding = on").await
}

/// A text, a statement at a time.
pub(crate) async fn apply_each(connection: &mut PgConnection, text: &str) -> sqlx::Result<()> {
    for statement in statements(text) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// One migration.
pub(super) async fn apply(connection: &mut PgConnection, text: &str) -> sqlx::Result<()> {
    for statement in statements(text) {
        // No way to say it there: only what is compressed hangs on it.
        if statement.contains(" set storage external") {
            continue;
        }
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await.inspect_err(|_| tracing::error!("{statement}"))?;
    }
    Ok(())
}

/// After the last migration: what a store has besides there.
pub(super) async fn finish(connection: &mut PgConnection, store: Store, is_fresh: bool) -> sqlx::Result<()> {
    if is_fresh {
        apply(connection, store.text(include_str!("../../../citus/tables.sql"))).await?;
        apply(connection, store.text(include_str!("../../../citus/sequences.sql"))).await?;
    }
    if let Some(home) = doors::home(connection, store).await? {
        let place = home.shards().get("place").cloned().unwrap_or_default();
        let texts =
            [include_str!("../../../citus/here.sql"), include_str!("../../../citus/arrive.sql"), include_str!("../../../citus/tell.sql")];
        for text in texts {
            let text = home.renamed(text).replace("queue_here.", &format!("{}.", here(store.schema())));
            let text = text.replace("place_shard", &place).replace("queue_schema", store.schema());
            apply(connection, &store.rewritten(&text)).await?;
        }
    }
    doors::make(connection, store).await?;
    let closed = include_str!("../../../citus/closed.sql").replace("queue_schema", store.schema());
    sqlx::raw_sql(AssertSqlSafe(closed)).execute(&mut *connection).await?;
    if is_fresh {
        // It arrives before anybody works with it.
        let arrive = format!("select h.held from queue.place p cross join lateral {}.held() h (held)", here(store.schema()));
        sqlx::raw_sql(AssertSqlSafe(store.rewritten(&arrive))).execute(connection).await?;
    }
    Ok(())
}

/// A node of a cluster, as its catalogs name it.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ClusterNode {
    host: String,
    #[sqlx(try_from = "i32")]
    port: u16,
    /// It is the one that was asked. How it is named may lead there from other nodes only.
    is_here: bool,
}

impl ClusterNode {
    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is the one that was asked.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether both are one.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// What leads to it, from what led to the node that was asked.
    ///
    /// # Errors
    /// A Unix socket leads to no other node.
    pub fn lead(&self, asked: PgConnectOptions) -> sqlx::Result<PgConnectOptions> {
        if self.is_here {
            Ok(asked)
        } else if asked.get_socket().is_some() {
            Err(sqlx::Error::Configuration(
                "the store is on another node of its cluster, and the address is a Unix socket: name a host".into(),
            ))
        } else {
            Ok(asked.host(&self.host).port(self.port))
        }
    }
}

impl std::fmt::Display for ClusterNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Where a distributed store is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The node that it is on.
    pub node: ClusterNode,
    /// Where partitions are made.
    pub coordinator: ClusterNode,
    /// The store, with statements for its node.
    pub store: Store,
}

/// Where the store is, as any node of its cluster knows; nothing if it is not distributed.
///
/// # Errors
/// The database's; a cluster that does not name its coordinator.
pub async fn locate(connection: &mut PgConnection, store: Store) -> sqlx::Result<Option<Owner>> {
    const NO_COORDINATOR: &str = "the cluster does not say where its coordinator is: call citus_set_coordinator_host('HOST') there";
    let Some(node) = place(connection, store).await? else { return Ok(None) };
    let Some(home) = doors::home(connection, store).await? else { return Ok(None) };
    let coordinator =
        sqlx::query_as(store.anywhere().sql(include_str!("../../../citus/coordinator.sql"))).fetch_optional(connection).await?;
    let coordinator = coordinator.ok_or_else(|| sqlx::Error::Configuration(NO_COORDINATOR.into()))?;
    Ok(Some(Owner { node, coordinator, store: store.at(kept(home)) }))
}

/// Its node only.
///
/// # Errors
/// The database's.
pub async fn place<C>(connection: &mut C, store: Store) -> sqlx::Result<Option<ClusterNode>>
where
    for<'c> &'c mut C: PgExecutor<'c>,
{
    if !is_distributed(connection, store).await? {
        return Ok(None);
    }
    let statement = sqlx::query_as(store.anywhere().sql(include_str!("../../../citus/place.sql")));
    statement.bind(store.text("queue.place")).fetch_optional(connection).await
}

/// Tells what those left to be told who have come over other nodes; on the node that the store is on. Whether there was anything.
///
/// # Errors
/// The database's.
pub async fn relay(connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
    sqlx::query_scalar(AssertSqlSafe(format!("select {}.relay()", here(store.schema())))).fetch_one(connection).await
}

/// Keeps one copy for ever.
fn kept(home: Home) -> &'static Home {
    static KEPT: Mutex<Vec<&'static Home>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.iter().find(|known| ***known == home) {
        return known;
    }
    let leaked: &'static Home = Box::leak(Box::new(home));
    kept.push(leaked);
    leaked
}
