//! Tests the privileges of each role: the catalog entries, regular use, and attacks.

mod attacks;
mod flows;
mod hidden;
mod locked;
mod matrix;
mod names;
mod schedules;
mod statements;
mod why;
mod work;

pub(crate) use self::matrix::executors;

use std::str::FromStr as _;

use queue_core::{Roles, Store};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::server::{Database, TestServer};

/// Logins with their roles. `mailer` is a producer for the queues `mail` and `news` only.
const USERS: [(&str, &str); 7] = [
    ("web", "queue_producer"),
    ("runner", "queue_worker"),
    ("viewer", "queue_reader"),
    ("ops", "queue_operator"),
    ("migrator", "queue_owner"),
    ("mailer", ""),
    ("nobody_else", ""),
];

/// Store on a separate server, with its roles and with users who are members of the roles.
struct RoledStore {
    server: TestServer,
    db: Database,
}

impl RoledStore {
    async fn new() -> Self {
        let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
        let db = server.database("app").await.unwrap();
        let store = Self { server, db };
        for (user, role) in USERS {
            store.run(&format!("create role {user} login")).await;
            if user == "mailer" {
                let roles = Roles::of_producer(Store::default(), "mailer", &["mail", "news"]).unwrap();
                roles.apply(&mut store.db.pool.acquire().await.unwrap()).await.unwrap();
            } else if user == "web" {
                Roles::of(Store::default()).apply(&mut store.db.pool.acquire().await.unwrap()).await.unwrap();
            }
            if !role.is_empty() {
                store.run(&format!("grant {role} to {user}")).await;
            }
        }
        store.run("grant select, insert on effect to runner").await;
        store
    }

    /// Runs SQL as the superuser.
    async fn run(&self, sql: &str) {
        self.db.pool.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn url(&self, user: &str) -> String {
        self.server.url("app").replace("postgres@", &format!("{user}@"))
    }

    fn pool(&self, user: &str) -> PgPool {
        let options = PgConnectOptions::from_str(&self.url(user)).unwrap();
        PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
    }

    async fn connect(&self, user: &str) -> PgConnection {
        PgConnection::connect(&self.url(user)).await.unwrap()
    }

    /// Runs a statement as `user`. Returns the SQLSTATE and the message if the statement fails.
    async fn tries(&self, user: &str, sql: &str) -> Result<(), String> {
        let done = self.connect(user).await.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        done.map(drop).map_err(|error| match error.as_database_error() {
            Some(error) => format!("{} {}", error.code().unwrap_or_default(), error.message()),
            None => panic!("{sql}: {error}"),
        })
    }

    /// Checks that a statement is rejected for a missing privilege.
    async fn is_denied(&self, user: &str, sql: &str) {
        let refused = self.tries(user, sql).await;
        assert!(refused.as_ref().is_err_and(|error| error.starts_with("42501 ")), "{user}: {sql}: {refused:?}");
    }
}
