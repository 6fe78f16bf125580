//! Tests users without superuser rights: each role of a distributed store, used through each node.

use std::{str::FromStr as _, time::Duration};

use queue_core::{
    Job as _, JobState, Queue, Roles, Store, job,
    operate::Filter,
    runner::{Migration, migrate_with},
};
use queue_worker::Worker;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::{TestDb, within};

use super::{
    cluster,
    kinds::{Echo, worker},
};

const USERS: [(&str, &str); 4] = [("web", "producer"), ("runner", "worker"), ("viewer", "reader"), ("ops", "operator")];

/// Job type with a schedule. The worker that declares the schedule has only the worker role.
#[job(name = "declared", every = "1s")]
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Declared {}

impl queue_core::Handler for Declared {
    async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
        Ok(())
    }
}

/// Migration of a later release.
const LATER: &str = "create function queue.later() returns bigint
  language sql stable
begin atomic
  select count(*) from queue.job j;
end;
";

fn pool(url: &str, user: &str) -> PgPool {
    let options = PgConnectOptions::from_str(url).unwrap().username(user);
    PgPoolOptions::new().max_connections(6).connect_lazy_with(options)
}

async fn execute_text(db: &TestDb, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&db.pool).await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// Returns a role name that is unique to the test run, because all databases of a server share the roles.
fn role_name(user: &str) -> String {
    format!("queue_run_{}_{user}", std::process::id())
}

fn roles() -> Roles {
    Roles::of(Store::default()).prefix(role_name("").trim_end_matches('_')).unwrap()
}

/// Creates the roles, and users that are members of these roles.
async fn create_users(db: &TestDb) {
    roles().apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    for (user, role) in USERS {
        execute_text(db, &format!("create role {} login", role_name(user))).await;
        execute_text(db, &format!("grant {} to {}", role_name(role), role_name(user))).await;
    }
    let mailer = Roles::of_producer(Store::default(), &role_name("mailer"), &["mail"]).unwrap();
    mailer.apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    execute_text(db, &format!("alter role {} login", role_name("mailer"))).await;
    execute_text(db, &format!("grant select, insert on effect to {}, {}", role_name("runner"), role_name("web"))).await;
}

/// Drops the users and roles. The caller must drop the database first, because the roles have privileges in it.
async fn drop_users() {
    let mut admin = PgConnection::connect(&std::env::var("QUEUE_TEST_CITUS").unwrap()).await.unwrap();
    let users = USERS.map(|(user, _)| role_name(user)).into_iter().chain([role_name("mailer")]).chain(roles().names().into_iter().rev());
    for user in users {
        sqlx::raw_sql(AssertSqlSafe(format!("drop role {user}"))).execute(&mut admin).await.unwrap();
    }
}

/// Executes a statement that must be rejected. Returns the SQLSTATE of the error.
async fn refused(pool: &PgPool, text: &str) -> String {
    let error = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(pool).await.expect_err(text);
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned()
}

async fn works(url: &str) {
    let [web, viewer, ops, mailer] = ["web", "viewer", "ops", "mailer"].map(|user| pool(url, &role_name(user)));
    let queue = Queue::new(&web);
    assert_eq!(Echo { n: 1 }.enqueue(&web).await.unwrap().wait(&queue).await.unwrap(), 1);
    let mut tx = web.begin().await.unwrap();
    sqlx::query("insert into effect (job, attempt, pid) values (1, 1, 1)").execute(&mut *tx).await.unwrap();
    let one = Echo { n: 2 }.enqueue(&mut *tx).unique(url).await.unwrap();
    let all = Echo::enqueue_all((0..20).map(|n| Echo { n }), &mut *tx).returning_ids().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(one.wait(&queue).await.unwrap(), 2);
    for handle in all {
        handle.wait(&queue).await.unwrap();
    }
    // A reader sees everything except payloads.
    let done = Filter { state: Some(JobState::Completed), ..Filter::default() };
    let listed = Queue::new(&viewer).jobs().matching(&done).list().await.unwrap().jobs;
    assert!(!listed.is_empty() && listed.iter().all(|job| job.payload.is_none()), "{listed:?}");
    Queue::new(&viewer).counts().await.unwrap();
    Queue::new(&viewer).job(one.id()).why().await.unwrap();
    let far = Echo { n: 3 }.enqueue(&web).after(Duration::from_hours(1)).await.unwrap();
    assert_eq!(refused(&viewer, &format!("select queue.cancel({})", far.id())).await, "42501");
    far.job_ref().cancel(&ops).await.unwrap();
    let shown = Queue::new(&ops).jobs().matching(&Filter { payload: true, ..done }).list().await.unwrap().jobs;
    assert!(shown.iter().any(|job| job.payload.is_some()), "{shown:?}");
    // The user `mailer` may enqueue only into the queue `mail`.
    Echo { n: 4 }.enqueue(&mailer).queue("mail").await.unwrap();
    assert_eq!(refused(&mailer, "select queue.enqueue('echo', '{\"n\": 1}', '{\"queue\": \"other\"}')").await, "42501");
    // The schema `queue_here` contains the functions that implement the functions in `queue`. A direct call of an implementation must be
    // rejected too. Nodes other than the store's own reject every such call by a user.
    let past = refused(&mailer, "select queue_here.enqueue('echo', '{\"n\": 1}', '{\"queue\": \"other\"}')").await;
    assert!(["42501", "57P03"].contains(&past.as_str()), "{past}");
    for text in ["select count(*) from queue.job", "select queue.cancel(1)", "select queue_here.cancel(1)", "select queue_here.relay()"] {
        assert_eq!(refused(&web, text).await, "42501", "{text}");
    }
    for pool in [web, viewer, ops, mailer] {
        pool.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_works_over_every_node() {
    let Some(db) = cluster("roles of a distributed store").await else { return };
    create_users(&db).await;
    for url in db.urls() {
        let given = pool(&url, &role_name("runner"));
        let worker: Worker = worker(&given).register::<Declared>();
        db.run_while(worker, async {
            for url in db.urls() {
                works(&url).await;
            }
            within(Duration::from_secs(20), "schedules are fired", async || {
                db.count("select count(*) from queue.fire where name = 'declared' and outcome = 'enqueued'").await > 1
            })
            .await;
        })
        .await;
        given.close().await;
    }
    // Any member of the owner role can migrate. The other roles have no privileges on new objects until the grants are repeated.
    let later = Migration::new(10_000, "later", LATER);
    let done = migrate_with(&mut db.pool.acquire().await.unwrap(), Store::default(), &[later], Duration::from_secs(20)).await.unwrap();
    assert_eq!(done, [10_000]);
    assert!(db.count("select queue.later()").await > 0);
    let viewer = pool(&db.urls()[2], &role_name("viewer"));
    assert_eq!(refused(&viewer, "select queue.later()").await, "42501");
    assert_eq!(refused(&viewer, "select queue_here.later()").await, "42501");
    roles().apply(&mut db.pool.acquire().await.unwrap()).await.unwrap();
    Queue::new(&viewer).counts().await.unwrap();
    viewer.close().await;
    db.finish().await;
    drop_users().await;
}
