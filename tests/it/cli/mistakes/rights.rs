//! Tests logins without the required privileges, and logins whose settings forbid writes.

use std::{fs::File, str::FromStr as _};

use queue_core::{Roles, Store};
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use tests::eventually;

use super::{
    super::{CLI, RunningCommand, command, folder},
    Fixture, Row,
};

/// Test cases for a login without any privileges.
const STRANGER: &[Row] = &[
    ("list", 1, "the login `{login}` lacks rights in the schema `queue` | grant \"queue_worker\" to \"{login}\""),
    ("cancel {ready}", 1, "lacks rights in the schema `queue` | grant"),
    ("run", 1, "lacks rights in the schema `queue` | grant"),
    ("migrate", 1, "lacks rights in the schema `queue` | grant"),
];

/// Test cases for a login that may only read.
const READER: &[Row] = &[
    ("cancel {ready}", 1, "permission denied for function apply_to_one | or `queue_operator` to operate (`test-cli roles` creates them)"),
    ("requeue --all --yes", 1, "permission denied for function apply_to_all | `queue_operator`"),
    ("pause --queue default", 1, "permission denied for function pause | `queue_operator`"),
    ("capacity default 3", 1, "permission denied for function set_capacity | `queue_operator`"),
    ("limits set stripe --concurrency 3", 1, "permission denied for function set_limit | `queue_operator`"),
    ("weight do acme 3", 1, "permission denied for function set_weight | `queue_operator`"),
    ("cron add x --type do --every 1h", 1, "permission denied for function schedule | `queue_operator`"),
    ("signal {ready} paid", 1, "permission denied for function called_by | `queue_operator`"),
    ("show {ready} --payload", 1, "permission denied for function find | `queue_operator`"),
    ("export --payload", 1, "permission denied for function list | `queue_operator`"),
    ("roles", 1, "(42501) | `test-cli roles` creates them"),
    ("run", 1, "the login `{login}` lacks rights in the schema `queue` | grant \"queue_worker\" to \"{login}\""),
];

/// Test cases for a login whose transactions are read-only.
const READ_ONLY: &[Row] = &[
    ("pause --queue default", 1, "read-only transaction (25006) | let this login write: `test-cli doctor` prints the statement"),
    ("cancel {ready}", 1, "read-only transaction (25006) | let this login write"),
    ("doctor --ignore fsync_off", 2, "transactions of this login are read-only | alter role"),
    ("migrate", 0, "up to date"),
];

/// Checks the log of a worker that loses its privileges while it is running. Commands in log messages must use the name of the worker's own
/// binary.
async fn name_commands_in_log(fixture: &Fixture, url: &str, login: &str) {
    fixture.run(&format!("grant {login}_worker to {login}; alter role {login} reset default_transaction_read_only")).await;
    let file = folder().join("rights.log");
    let mut run = command(CLI, &["run", "--name", login, "--queue", "nowhere"]);
    run.env("DATABASE_URL", url).stderr(File::create(&file).unwrap());
    let worker = RunningCommand::start(&mut run);
    fixture.db.until_count(&format!("select count(*) from queue.worker where name = '{login}'"), 1).await;
    let held = format!("{login}_worker, {login}_reader, {login}_operator");
    fixture
        .run(&format!("revoke all on all tables in schema queue from {held}; revoke all on all routines in schema queue from {held}"))
        .await;
    let log = || std::fs::read_to_string(&file).unwrap();
    eventually("the lost right is logged", async || log().contains("(42501)")).await;
    assert!(log().contains("(`test-cli roles` creates them)") && !log().contains("`queue-worker "), "{}", log());
    drop(worker);
}

#[tokio::test]
async fn a_login_without_a_privilege_gets_an_error_with_the_privilege_and_its_roles() {
    let mut fixture = Fixture::new().await;
    let login = format!("cli_{}", uuid::Uuid::new_v4().simple());
    let roles = Roles::of(Store::default()).prefix(&login).unwrap();
    roles.apply(&mut fixture.db.pool.acquire().await.unwrap()).await.unwrap();
    fixture.run(&format!("create role {login} login")).await;
    fixture.names.insert("login", login.clone());
    let url = PgConnectOptions::from_str(&fixture.db.url).unwrap().username(&login).to_url_lossy().to_string();
    fixture.play(&url, STRANGER);
    fixture.run(&format!("grant {login}_reader to {login}")).await;
    fixture.play(&url, READER);
    fixture.run(&format!("grant {login}_operator to {login}; alter role {login} set default_transaction_read_only = on")).await;
    fixture.play(&url, READ_ONLY);
    name_commands_in_log(&fixture, &url, &login).await;
    let all = roles
        .names()
        .into_iter()
        .chain([login])
        .map(|role| format!("reassign owned by {role} to current_user; drop owned by {role}; drop role {role}"));
    fixture.run(&all.collect::<Vec<_>>().join("; ")).await;
    fixture.db.finish().await;
}
