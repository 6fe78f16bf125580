//! Support for a store in a distributed schema of a Citus cluster. All tables of the store are on one node, but the store can move to
//! another node. On the store's node, statements name the shards directly and cost as much as on plain PostgreSQL. On other nodes,
//! functions forward calls to the store's node. This module does not depend on jobs.

mod entry_points;
mod node_names;
mod statements;

use std::sync::{Mutex, PoisonError};

use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, postgres::PgConnectOptions};

pub(super) use self::node_names::NodeNames;
use self::{node_names::local_schema, statements::statements};
use crate::schema::store::Store;

/// Returns whether the schema is distributed.
pub(super) async fn is_distributed<C>(connection: &mut C, store: Store) -> sqlx::Result<bool>
where
    for<'c> &'c mut C: PgExecutor<'c>,
{
    const HAS_CITUS: &str = "select pg_catalog.to_regclass('pg_catalog.pg_dist_schema') is not null";
    const IS_DISTRIBUTED: &str = "select exists (select from pg_catalog.pg_dist_schema d \
        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) d.schemaid where n.nspname operator(pg_catalog.=) $1)";
    Ok(sqlx::query_scalar(HAS_CITUS).fetch_one(&mut *connection).await?
        && sqlx::query_scalar(IS_DISTRIBUTED).bind(store.schema()).fetch_one(connection).await?)
}

/// Prepares the transaction for the migrations of a distributed store, and creates the schema of the local functions.
pub(super) async fn prepare(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    const IS_THERE: &str = "select pg_catalog.to_regnamespace($1) is not null";
    apply_each(connection, "set local citus.multi_shard_modify_mode = 'sequential'; set local check_function_bodies = off").await?;
    // The schema is created only if missing, because the owner of the store may lack the privilege to create schemas.
    if sqlx::query_scalar(IS_THERE).bind(local_schema(store.schema())).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let made = format!("set local citus.enable_schema_based_sharding = off; create schema {}", local_schema(store.schema()));
    apply_each(connection, &made).await?;
    apply_each(connection, "set local citus.enable_schema_based_sharding = on").await
}

/// Executes the statements of an SQL text one at a time.
pub(crate) async fn apply_each(connection: &mut PgConnection, text: &str) -> sqlx::Result<()> {
    for statement in statements(text) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Applies one migration, statement by statement.
pub(super) async fn apply(connection: &mut PgConnection, text: &str) -> sqlx::Result<()> {
    for statement in statements(text) {
        // Citus does not support this statement. Skipping it affects only compression.
        if statement.contains(" set storage external") {
            continue;
        }
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await.inspect_err(|_| tracing::error!("{statement}"))?;
    }
    Ok(())
}

/// Creates the objects that only distributed stores have. Called after the last migration.
pub(super) async fn finish(connection: &mut PgConnection, store: Store, is_fresh: bool) -> sqlx::Result<()> {
    if is_fresh {
        apply(connection, store.text(include_str!("../../../citus/tables.sql"))).await?;
        apply(connection, store.text(include_str!("../../../citus/sequences.sql"))).await?;
    }
    if let Some(home) = entry_points::load_node_names(connection, store).await? {
        let place = home.shards().get("place").cloned().unwrap_or_default();
        let texts =
            [include_str!("../../../citus/here.sql"), include_str!("../../../citus/arrive.sql"), include_str!("../../../citus/notify.sql")];
        for text in texts {
            let text = home.replace_names(text).replace("queue_here.", &format!("{}.", local_schema(store.schema())));
            let text = text.replace("place_shard", &place).replace("queue_schema", store.schema());
            apply(connection, &store.rewrite_text(&text)).await?;
        }
    }
    entry_points::create_functions(connection, store).await?;
    let closed = include_str!("../../../citus/closed.sql").replace("queue_schema", store.schema());
    sqlx::raw_sql(AssertSqlSafe(closed)).execute(&mut *connection).await?;
    if is_fresh {
        // Calls `held` before the store is in use, to register the node that holds the store.
        let arrive = format!("select h.held from queue.place p cross join lateral {}.held() h (held)", local_schema(store.schema()));
        sqlx::raw_sql(AssertSqlSafe(store.rewrite_text(&arrive))).execute(connection).await?;
    }
    Ok(())
}

/// Node of a cluster, as named in the cluster's catalogs.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct ClusterNode {
    host: String,
    #[sqlx(try_from = "i32")]
    port: u16,
    /// Whether the current connection is to this node. If so, `host` is not used to connect, because it may be valid only on other nodes.
    is_here: bool,
}

impl ClusterNode {
    /// Returns the port of the node.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the connection is to this node.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// Returns whether `self` and `other` are the same node.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Returns options to connect to this node, based on the options of the current connection.
    ///
    /// # Errors
    /// Returns an error if the current connection is to another node and uses a Unix socket, which cannot reach this node.
    pub fn lead(&self, options: PgConnectOptions) -> sqlx::Result<PgConnectOptions> {
        if self.is_here {
            Ok(options)
        } else if options.get_socket().is_some() {
            Err(sqlx::Error::Configuration(
                "the store is on another node of its cluster, which a Unix socket cannot reach: use a host name".into(),
            ))
        } else {
            Ok(options.host(&self.host).port(self.port))
        }
    }
}

impl std::fmt::Display for ClusterNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Location of a distributed store in its cluster.
#[derive(Clone, Debug)]
pub struct StoreLocation {
    /// Node that holds the store.
    pub node: ClusterNode,
    /// Coordinator of the cluster, which creates and drops partitions.
    pub coordinator: ClusterNode,
    /// Store, with statements rewritten for `node`.
    pub store: Store,
}

/// Locates the store, from any node of its cluster. Returns `None` if the store is not distributed.
///
/// # Errors
/// Returns an error if a database query fails, or if the cluster does not name its coordinator.
pub async fn locate(connection: &mut PgConnection, store: Store) -> sqlx::Result<Option<StoreLocation>> {
    const NO_COORDINATOR: &str = "the coordinator of the cluster is not configured: call citus_set_coordinator_host('HOST') on it";
    let Some(node) = place(connection, store).await? else { return Ok(None) };
    let Some(home) = entry_points::load_node_names(connection, store).await? else { return Ok(None) };
    let coordinator =
        sqlx::query_as(store.anywhere().sql(include_str!("../../../citus/coordinator.sql"))).fetch_optional(connection).await?;
    let coordinator = coordinator.ok_or_else(|| sqlx::Error::Configuration(NO_COORDINATOR.into()))?;
    Ok(Some(StoreLocation { node, coordinator, store: store.at(intern_names(home)) }))
}

/// Returns the node that holds the store, or `None` if the store is not distributed.
///
/// # Errors
/// Returns an error if the database query fails.
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

/// Sends the notifications that were stored by transactions started on other nodes. Must run on the store's node. Returns whether any
/// notifications were sent.
///
/// # Errors
/// Returns an error if the database query fails.
pub async fn relay(connection: &mut PgConnection, store: Store) -> sqlx::Result<bool> {
    sqlx::query_scalar(AssertSqlSafe(format!("select {}.relay()", local_schema(store.schema())))).fetch_one(connection).await
}

/// Returns the names with a `'static` lifetime. The names are never freed, and equal names share one copy.
fn intern_names(home: NodeNames) -> &'static NodeNames {
    static KEPT: Mutex<Vec<&'static NodeNames>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.iter().find(|known| ***known == home) {
        return known;
    }
    let leaked: &'static NodeNames = Box::leak(Box::new(home));
    kept.push(leaked);
    leaked
}
