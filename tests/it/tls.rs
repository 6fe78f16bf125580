//! Tests a server that accepts only encrypted connections, and the errors for mismatched TLS settings of client and server.

use std::time::Duration;

use queue_worker::Database;
use sqlx::Connection as _;
use tests::{
    Act, Do, WorkerProcess,
    server::{TestServer, url},
    within,
};

/// Path of the CA certificate that signed the server's certificate. The server's certificate is valid for 127.0.0.1 only.
const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tls/ca.pem");

async fn refusal(url: &str) -> String {
    Database::connect(url).await.map(drop).unwrap_err().to_string()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_runs_jobs_on_encrypted_connections_only() {
    let server = TestServer::start_encrypted().await.unwrap();
    let database = server.database("encrypted").await.unwrap();
    let sealed = format!("postgres://sealed@127.0.0.1:{}/encrypted", server.port());
    for url in [sealed.clone(), format!("{sealed}?sslmode=verify-full&sslrootcert={AUTHORITY}")] {
        let worker = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &url, &[]);
        let job = queue_core::Job::enqueue(Do { act: Act::Ok("done".into()) }, &database.pool).await.unwrap().id();
        let completed = format!("select count(*) from queue.jobs where state = 'completed' and id = {job}");
        within(Duration::from_secs(30), "it is run", async || database.count(&completed).await.unwrap() == 1).await;
        let ours = "select count(*) from pg_stat_activity a join pg_stat_ssl s using (pid) where a.usename = 'sealed'";
        assert!(database.count(ours).await.unwrap() >= 4, "they are counted");
        assert_eq!(database.count(&format!("{ours} and not s.ssl")).await.unwrap(), 0);
        drop(worker);
    }
    database.pool.close().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn if_the_two_ends_disagree_the_error_names_the_fix() {
    let server = TestServer::start_encrypted().await.unwrap();
    let sealed = |host: &str, mode: &str| format!("postgres://sealed@{host}:{}/postgres?sslmode={mode}", server.port());
    for (host, mode, fix) in [
        ("127.0.0.1", "disable", "; the server accepts only encrypted connections: set `sslmode=require` in the database URL"),
        (
            "127.0.0.1",
            "verify-full",
            "; set the certificate authority that signed the server's certificate: `sslrootcert=/path/to/ca.pem` in the URL",
        ),
    ] {
        let error = refusal(&sealed(host, mode)).await;
        assert!(error.ends_with(fix), "{mode}: {error}");
    }
    let error = refusal(&format!("{}&sslrootcert={AUTHORITY}", sealed("localhost", "verify-full"))).await;
    assert!(error.ends_with("; use a server name that its certificate contains, or `sslmode=verify-ca`"), "{error}");
    let database = Database::connect(&format!("{}&sslrootcert={AUTHORITY}", sealed("localhost", "verify-ca"))).await.unwrap();
    database.close().await;

    let plain = TestServer::start().await.unwrap();
    let error = refusal(&url(plain.port(), "postgres").replace("disable", "require")).await;
    assert!(error.contains("; enable `ssl` in the server's settings"), "{error}");
    // If TLS is not required, a server without TLS is accepted.
    let mut connection = sqlx::PgConnection::connect(&url(plain.port(), "postgres").replace("?sslmode=disable", "")).await.unwrap();
    connection.ping().await.unwrap();
}
