//! Tests host selection, and the error if no host is suitable.

use queue_worker::Error;
use tokio::net::TcpListener;

use super::*;

fn url(ports: &[u16], rest: &str) -> String {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres:secret@{}/{NAME}?sslmode=disable{rest}", hosts.join(","))
}

async fn chosen(url: &str) -> u16 {
    let address = Address::connect(url).await.unwrap();
    let port: i32 = sqlx::query_scalar("select current_setting('port')::int").fetch_one(address.pool()).await.unwrap();
    assert_eq!(i32::from(address.pool().connect_options().get_port()), port);
    address.close().await;
    u16::try_from(port).unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn f86_of_several_hosts_the_requested_one_is_found() {
    let primary = TestServer::start().await.unwrap();
    primary.database(NAME).await.unwrap();
    let standby = primary.standby(primary.port()).await.unwrap();
    let (one, two) = (primary.port(), standby.port());
    // One host accepts connections and never answers, and another is unreachable.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for (ports, rest, expected) in [
        (&[one, two][..], "", one),
        (&[two, one], "", one),
        (&[gone, two, one], "", one),
        (&[silent_port, two, one], "&target_session_attrs=read-write", one),
        (&[two, one], "&target_session_attrs=primary", one),
        (&[one, two], "&target_session_attrs=standby", two),
        (&[one, two], "&target_session_attrs=read-only", two),
        (&[one, gone, two], "&target_session_attrs=prefer-standby", two),
        (&[one, gone], "&target_session_attrs=prefer-standby", one),
        (&[gone, two], "&target_session_attrs=any", two),
        (&[two], "", two),
    ] {
        assert_eq!(chosen(&url(ports, rest)).await, expected, "{ports:?} {rest}");
    }
    // A client that accepts any host does not wait for the host that never answers.
    chosen(&url(&[silent_port, one], "&connect_timeout=3600")).await;

    let error = Address::connect(&url(&[two, gone, silent_port], "&connect_timeout=1")).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::NoHost { standby: true, .. }) && error.is_transient(), "{message}");
    assert!(message.contains(&format!("127.0.0.1:{two} is a standby, 127.0.0.1:{gone} does not answer (")), "{message}");
    assert!(message.contains(&format!("127.0.0.1:{silent_port} does not answer")) && !message.contains("secret"), "{message}");
    let error = Address::connect(&url(&[two], "&target_session_attrs=read-write")).await.unwrap_err();
    assert!(matches!(error, Error::NoHost { standby: true, .. }), "{error}");
    let error = Address::connect(&url(&[one, two], "&target_session_atrs=any")).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Address(_)) && message.contains("`target_session_atrs`") && !message.contains("secret"), "{message}");
}

#[tokio::test]
#[ignore = "deep"]
async fn a_primary_set_to_read_only_is_left_and_returned_to() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database(NAME).await.unwrap();
    let standby = primary.standby(primary.port()).await.unwrap();
    let address = Address::connect(&both(&standby, &primary)).await.unwrap();
    let set_read_only = async |value: &str| {
        let statement = AssertSqlSafe(format!("alter system set default_transaction_read_only = {value}"));
        let mut connection = database.pool.acquire().await.unwrap();
        sqlx::raw_sql("set default_transaction_read_only = off").execute(&mut *connection).await.unwrap();
        sqlx::raw_sql(statement).execute(&mut *connection).await.unwrap();
        sqlx::raw_sql("select pg_reload_conf()").execute(&mut *connection).await.unwrap();
    };
    let write = async || {
        let tried = sqlx::query("insert into effect (job) values (1)").execute(address.pool());
        // While no host accepts writes, a new connection waits.
        tokio::time::timeout(Duration::from_secs(2), tried).await.is_ok_and(|done| done.is_ok())
    };
    assert!(write().await);
    set_read_only("on").await;
    within(PATIENCE, "writes are refused", async || !write().await).await;
    set_read_only("off").await;
    within(PATIENCE, "writes are taken", write).await;
    assert_eq!(address.pool().connect_options().get_port(), primary.port());
    address.close().await;
}
