//! Optional Citus cluster for tests. `QUEUE_TEST_CITUS` is the URL at which a superuser connects to the coordinator. The other nodes are
//! read from the coordinator's catalog.

use std::str::FromStr as _;

use queue_core::{Store, migrate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};

use crate::db::{connect, run, with_database};

/// Returns the URLs of the cluster's nodes, coordinator first, or `None` if no cluster is configured.
///
/// # Panics
/// Panics if the cluster does not respond.
pub async fn nodes() -> Option<Vec<String>> {
    const NODES: &str = "select nodename::text, nodeport from pg_dist_node where noderole = 'primary' order by groupid";
    let url = std::env::var("QUEUE_TEST_CITUS").ok()?;
    let mut admin = connect(&url).await;
    let found: Vec<(String, i32)> = sqlx::query_as(NODES).fetch_all(&mut admin).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let options = PgConnectOptions::from_str(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let (host, port) = (options.get_host(), options.get_port());
    Some(found.into_iter().map(|(name, at)| url.replace(&format!("{host}:{port}"), &format!("{name}:{at}"))).collect())
}

/// Returns the name of the template database. The name contains the modification time of this binary. The binary embeds the code that
/// creates the template, so different builds do not share a template.
fn template() -> String {
    let made = std::env::current_exe().and_then(|path| path.metadata()).and_then(|file| file.modified());
    let since = made.ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    format!("queue_cluster_{}", since.as_millis())
}

/// Creates a database named `name` on each node, copied from a template with a distributed store.
pub(crate) async fn make(nodes: &[String], name: &str) {
    ensure_template(nodes).await;
    for node in nodes {
        let mut admin = connect(node).await;
        run(&mut admin, &format!("create database {name} template {} strategy file_copy", template())).await;
        run(&mut admin, &format!("alter database {name} set citus.enable_schema_based_sharding = on")).await;
    }
}

/// Drops the database named `name` on each node.
pub(crate) async fn drop(nodes: &[String], name: &str) {
    for node in nodes {
        run(&mut connect(node).await, &format!("drop database if exists {name} with (force)")).await;
    }
}

async fn ensure_template(nodes: &[String]) {
    const EXISTS: &str = "select exists (select from pg_database where datname = $1)";
    let name = template();
    let mut admin = connect(&nodes[0]).await;
    run(&mut admin, "select pg_advisory_lock(1)").await;
    let exists: bool = sqlx::query_scalar(EXISTS).bind(&name).fetch_one(&mut admin).await.unwrap_or_else(|error| panic!("{error}"));
    if !exists {
        for node in nodes {
            let mut admin = connect(node).await;
            let earlier: Vec<String> = sqlx::query_scalar("select datname::text from pg_database where datname like 'queue\\_cluster\\_%'")
                .fetch_all(&mut admin)
                .await
                .unwrap_or_else(|error| panic!("{node}: {error}"));
            for name in earlier {
                run(&mut admin, &format!("drop database if exists {name} with (force)")).await;
            }
            run(&mut admin, "drop database if exists queue_template_new with (force)").await;
            run(&mut admin, "create database queue_template_new").await;
            run(&mut connect(&with_database(node, "queue_template_new")).await, "create extension citus").await;
        }
        let mut fresh = connect(&with_database(&nodes[0], "queue_template_new")).await;
        for (nr, node) in nodes.iter().enumerate() {
            let options = PgConnectOptions::from_str(node).unwrap_or_else(|error| panic!("{node}: {error}"));
            let call = if nr == 0 { "citus_set_coordinator_host" } else { "citus_add_node" };
            run(&mut fresh, &format!("select {call}('{}', {})", options.get_host(), options.get_port())).await;
        }
        run(&mut fresh, "set citus.enable_schema_based_sharding = on").await;
        migrate(&mut fresh, Store::default()).await.unwrap_or_else(|error| panic!("cannot migrate the template: {error}"));
        run(&mut fresh, "create table effect (job bigint, attempt int, pid int, at timestamptz default clock_timestamp())").await;
        run(&mut fresh, "select create_distributed_table('effect', null, colocate_with => 'none')").await;
        fresh.close().await.unwrap_or_else(|error| panic!("cannot close the template: {error}"));
        for node in nodes.iter().rev() {
            let mut admin = connect(node).await;
            run(&mut admin, "alter database queue_template_new allow_connections false").await;
            // Only a database without sessions can be renamed and copied. Background sessions of Citus reconnect, so connections are
            // forbidden before the sessions are terminated.
            let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = 'queue_template_new'";
            sqlx::raw_sql(AssertSqlSafe(end)).execute(&mut admin).await.unwrap_or_else(|error| panic!("{end}: {error}"));
            run(&mut admin, &format!("alter database queue_template_new rename to {name}")).await;
        }
    }
    run(&mut admin, "select pg_advisory_unlock(1)").await;
    let _ = PgConnection::close(admin).await;
}
