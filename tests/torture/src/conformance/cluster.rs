//! A Citus cluster, if the run is on one: its stores are distributed then. They are made over the coordinator, as everybody's are; all else is done over the
//! node that was named, and where that may have stores, they are moved to it.

use std::str::FromStr as _;

use anyhow::{Context as _, Result, ensure};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// What a run knows of its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    coordinator: PgPool,
    /// Who makes days: as any role of the store, to the node that was named.
    is_coordinator: bool,
    /// The node that was named, by what the cluster calls it, if stores are to be there.
    home: Option<(String, i32)>,
}

/// A schema that is made now is a distributed one.
const IS_ON: &str = "select coalesce(current_setting('citus.enable_schema_based_sharding', true), 'off') = 'on'
  and exists (select from pg_extension where extname = 'citus')";

/// What makes it so for whoever connects.
const ON: &str = "options=-c%20citus.enable_schema_based_sharding%3Don";

/// The coordinator, and the node that is asked.
const NODES: &str = "select n.nodename::text, n.nodeport, n.groupid, l.groupid, n.shouldhaveshards
  from pg_dist_node n cross join pg_dist_local_group l
  where n.noderole = 'primary' and n.groupid in (0, l.groupid) order by n.groupid";

/// The address, with distributed schemas.
pub(super) fn distributing(url: &str) -> String {
    let joined = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joined}{ON}")
}

impl Cluster {
    /// Of the server at this address, if schemas that are made there are distributed ones.
    pub(super) async fn find(url: &str, pool: &PgPool) -> Result<Option<Self>> {
        if !sqlx::query_scalar::<_, bool>(IS_ON).fetch_one(pool).await? {
            return Ok(None);
        }
        let nodes: Vec<(String, i32, i32, i32, bool)> = sqlx::query_as(NODES).fetch_all(pool).await?;
        let (host, port, ..) =
            nodes.iter().find(|(.., group, _, _)| *group == 0).context("the cluster does not say where its coordinator is")?;
        let (name, at, of, _, has_shards) =
            nodes.iter().find(|(.., group, local, _)| group == local).context("the node is none that the cluster knows")?;
        let is_coordinator = *of == 0;
        let options = PgConnectOptions::from_str(url)?;
        let options = if is_coordinator { options } else { options.host(host).port(u16::try_from(*port)?) };
        let coordinator = PgPoolOptions::new().max_connections(4).connect_with(options).await.context("the coordinator of the cluster")?;
        Ok(Some(Self { coordinator, is_coordinator, home: (*has_shards && !is_coordinator).then(|| (name.clone(), *at)) }))
    }

    pub(super) fn coordinator(&self) -> &PgPool {
        &self.coordinator
    }

    /// For the head of the table.
    pub(super) fn told(&self) -> &'static str {
        match (self.is_coordinator, &self.home) {
            (true, _) => "Citus: distributed stores, over the coordinator",
            (_, Some(_)) => "Citus: distributed stores, over the node that they are on",
            _ => "Citus: distributed stores, over a node that has none",
        }
    }

    /// Takes a store to the node that was named.
    pub(super) async fn take_home(&self, schema: &str) -> Result<()> {
        let Some((host, port)) = &self.home else { return Ok(()) };
        let is_there =
            "select count(*) = 0 from pg_dist_shard s join pg_dist_placement p using (shardid) join pg_dist_node n using (groupid)
          where s.logicalrelid = $1::regclass and (n.nodename, n.nodeport) <> ($2, $3)";
        let table = format!("{schema}.place");
        let asked = || sqlx::query_scalar::<_, bool>(is_there).bind(&table).bind(host).bind(*port).fetch_one(&self.coordinator);
        if !asked().await? {
            let moved = format!("select citus_schema_move('{schema}', '{host}', {port}, 'block_writes')");
            sqlx::raw_sql(AssertSqlSafe(moved)).execute(&self.coordinator).await?;
        }
        ensure!(asked().await?, "the store is on another node than the one that was named");
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.coordinator.close().await;
    }
}
