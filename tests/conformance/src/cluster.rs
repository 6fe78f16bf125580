//! Citus cluster of a run, if any. The cluster's stores are distributed and are created through the coordinator. All other operations use
//! the node that the database URL names (the named node). A store is moved to the named node if this node may hold shards and is not
//! the coordinator.

use std::str::FromStr as _;

use anyhow::{Context as _, Result, ensure};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// Citus cluster of a run, with the role of the node that the database URL names.
#[derive(Debug)]
pub(super) struct Cluster {
    coordinator: PgPool,
    /// Whether the node that the database URL names is the coordinator.
    is_coordinator: bool,
    /// Host and port under which the cluster lists the named node, or `None` if that node is the coordinator or may not hold shards.
    home: Option<(String, i32)>,
}

/// Query that returns whether new schemas are distributed.
const IS_ON: &str = "select coalesce(current_setting('citus.enable_schema_based_sharding', true), 'off') = 'on'
  and exists (select from pg_extension where extname = 'citus')";

/// Connection option that makes new schemas distributed.
const ON: &str = "options=-c%20citus.enable_schema_based_sharding%3Don";

/// Query for the coordinator and the connected node.
const NODES: &str = "select n.nodename::text, n.nodeport, n.groupid, l.groupid, n.shouldhaveshards
  from pg_dist_node n cross join pg_dist_local_group l
  where n.noderole = 'primary' and n.groupid in (0, l.groupid) order by n.groupid";

/// Returns the URL with the option that makes new schemas distributed.
pub(super) fn with_distributed_schemas(url: &str) -> String {
    let joined = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joined}{ON}")
}

impl Cluster {
    /// Returns the cluster of the server at this URL, if new schemas there are distributed.
    pub(super) async fn find(url: &str, pool: &PgPool) -> Result<Option<Self>> {
        if !sqlx::query_scalar::<_, bool>(IS_ON).fetch_one(pool).await? {
            return Ok(None);
        }
        let nodes: Vec<(String, i32, i32, i32, bool)> = sqlx::query_as(NODES).fetch_all(pool).await?;
        let (host, port, ..) = nodes.iter().find(|(.., group, _, _)| *group == 0).context("the cluster reports no coordinator")?;
        let (name, at, of, _, has_shards) =
            nodes.iter().find(|(.., group, local, _)| group == local).context("the cluster does not know this node")?;
        let is_coordinator = *of == 0;
        let options = PgConnectOptions::from_str(url)?;
        let options = if is_coordinator { options } else { options.host(host).port(u16::try_from(*port)?) };
        let coordinator = PgPoolOptions::new().max_connections(4).connect_with(options).await.context("the coordinator of the cluster")?;
        Ok(Some(Self { coordinator, is_coordinator, home: (*has_shards && !is_coordinator).then(|| (name.clone(), *at)) }))
    }

    pub(super) fn coordinator(&self) -> &PgPool {
        &self.coordinator
    }

    /// Returns a description of the cluster for the heading of the report.
    pub(super) fn description(&self) -> &'static str {
        match (self.is_coordinator, &self.home) {
            (true, _) => "Citus: distributed stores, through the coordinator",
            (_, Some(_)) => "Citus: distributed stores, through their own node",
            _ => "Citus: distributed stores, through another node",
        }
    }

    /// Moves a store to the named node. Does nothing if that node is the coordinator or may not hold shards.
    pub(super) async fn move_to_node(&self, schema: &str) -> Result<()> {
        let Some((host, port)) = &self.home else { return Ok(()) };
        let is_there =
            "select count(*) = 0 from pg_dist_shard s join pg_dist_placement p using (shardid) join pg_dist_node n using (groupid)
          where s.logicalrelid = $1::regclass and (n.nodename, n.nodeport) <> ($2, $3)";
        let table = format!("{schema}.place");
        let is_on_node = || sqlx::query_scalar::<_, bool>(is_there).bind(&table).bind(host).bind(*port).fetch_one(&self.coordinator);
        if !is_on_node().await? {
            let moved = format!("select citus_schema_move('{schema}', '{host}', {port}, 'block_writes')");
            sqlx::raw_sql(AssertSqlSafe(moved)).execute(&self.coordinator).await?;
        }
        ensure!(is_on_node().await?, "the store is not on the named node");
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.coordinator.close().await;
    }
}
