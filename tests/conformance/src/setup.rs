//! Servers of a run: those that the options select, or an embedded server.

use anyhow::{Context as _, Result, bail};
use queue_worker::{
    Database, OnStandby,
    embedded::{self, Embedded, EmbeddedOptions},
};

use super::{
    Options,
    cluster::{Cluster, with_distributed_schemas},
};

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
    /// Embedded server, which stops when the run ends. `None` if the options select a server.
    _embedded: Option<Embedded>,
}

/// Pool size. The handlers share the pool with the operations under test.
const POOL_SIZE: u32 = 10;

impl Setup {
    /// Connects to the server that the options select, or starts an embedded server.
    pub(super) async fn new(name: &str, options: &Options) -> Result<Self> {
        let mut embedded = None;
        let url = if let Some(url) = &options.database_url {
            url.clone()
        } else {
            let server = embedded::start(EmbeddedOptions { durable: true, ..EmbeddedOptions::temporary() }).await?;
            embedded.insert(server).url().to_owned()
        };
        let distributed = |url: &str| if options.citus { with_distributed_schemas(url) } else { url.to_owned() };
        let (url, direct_url) = (distributed(&url), options.direct_url.as_deref().map(distributed));
        let mut connect = Database::options().url(&url).pool_size(POOL_SIZE).on_standby(OnStandby::Exit);
        if let Some(direct) = &direct_url {
            connect = connect.direct_url(direct);
        }
        let database = connect.connect().await?;
        let read = match &options.read_url {
            Some(url) => Some(Database::connect(url).await.context("the server of --read-url")?),
            None => None,
        };
        let cluster = Cluster::find(direct_url.as_ref().unwrap_or(&url), database.direct()).await?;
        if options.citus && cluster.is_none() {
            bail!("--citus requires a database with Citus");
        }
        Ok(Self { name: name.to_owned(), url, direct_url, database, read, cluster, _embedded: embedded })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version of the server, the versions of its extensions, and the description of the cluster, if any.
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
    }
}
