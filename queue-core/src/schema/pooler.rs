//! Detects how a pooler in front of the database treats sessions. With transaction pooling, a LISTEN stays in effect in the server
//! session after the client's transaction. The next client to which the pooler assigns the session then receives notifications that it
//! did not request. A pooler without support for prepared statements exposes one client's statements to other clients.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _,
    error::DatabaseError,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::time::timeout;
use uuid::Uuid;

/// Connection for notifications, and whether the connection may listen.
pub struct ListenerConnection {
    /// Listener that is not subscribed to any channel yet.
    pub listener: PgListener,
    /// Whether the connection keeps its session, and therefore the session's settings.
    pub keeps_session: bool,
}

/// Log message for a connection that does not keep its session.
pub const NO_SESSION: &str = "notifications do not arrive: a pooler in transaction mode, or one without a free session, is in front of the \
    database; not listening, polling instead; set a direct connection to the server: QUEUE_DIRECT_URL";

/// Number of additional connections used to check whether a pooler exposes prepared statements to other clients.
const EXTRA_CONNECTIONS: usize = 3;

/// Maximum wait for a session or for a notification. A pooler without a free session makes a client wait silently.
const MAX_WAIT: Duration = Duration::from_secs(2);

impl ListenerConnection {
    /// Connects, and determines whether the connection may listen.
    ///
    /// The connection is opened with a custom setting. If the setting is in effect, the connection has a session of its own, because a
    /// pooler that shares sessions would have rejected or dropped the setting. Otherwise, the connection listens on a new unique channel,
    /// and a second connection notifies that channel. Without a session of its own, the connection does not receive the notification.
    ///
    /// # Errors
    /// Returns an error if connecting fails. An inconclusive check is not an error, but the connection must not listen.
    pub async fn open(options: PgConnectOptions) -> sqlx::Result<Self> {
        let mark = Uuid::new_v4().to_string();
        let (mut listener, options) = match connect(options.clone().options([("queue.session", mark.as_str())])).await {
            Err(error) if is_refused_setting(&error) => {
                let plain = options.extra_float_digits(None);
                (connect(plain.clone()).await?, plain)
            }
            connected => (connected?, options),
        };
        // The simple protocol has no prepared statements that a pooler could mix up.
        let setting = sqlx::raw_sql("select pg_catalog.current_setting('queue.session', true)").fetch_one(&mut listener).await?;
        let is_ours = setting.try_get::<Option<String>, _>(0)?.is_some_and(|setting| setting == mark);
        let keeps_session = is_ours || receives_notification(&mut listener, &options, &mark).await.unwrap_or(false);
        Ok(Self { listener, keeps_session })
    }

    /// Connects without a check. The connection must not listen.
    ///
    /// # Errors
    /// Returns an error if connecting fails.
    pub async fn without_listening(options: PgConnectOptions) -> sqlx::Result<Self> {
        let listener = match connect(options.clone()).await {
            Err(error) if is_refused_setting(&error) => connect(options.extra_float_digits(None)).await?,
            connected => connected?,
        };
        Ok(Self { listener, keeps_session: false })
    }
}

/// Opens a listener on a pool with one connection, because the driver's listener requires a pool.
async fn connect(options: PgConnectOptions) -> sqlx::Result<PgListener> {
    PgListener::connect_with(&PgPoolOptions::new().max_connections(1).connect_lazy_with(options)).await
}

/// Returns whether a pooler rejected the startup settings of a connection.
pub fn is_refused_setting(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with("unsupported startup parameter"))
}

/// Returns whether a statement failed because the pooler has mixed up prepared statements. The assigned session then has another client's
/// statements, or lacks this client's statements.
fn is_statement_mixup(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "26000" || code == "42P05")
}

/// Returns whether a pooler exposes the prepared statements of one client to other clients.
///
/// Every connection gives its first prepared statement the same name. If another connection has used the session before, a statement with
/// this name already exists, unless the pooler separates the statements. With several poolers side by side, a mix-up may go undetected,
/// because the connections may use different poolers.
///
/// # Errors
/// Returns an error if the first connection fails.
pub async fn mixes_up(options: &PgConnectOptions) -> sqlx::Result<bool> {
    let mut all: Vec<PgConnection> = Vec::new();
    let mut mixed = Ok(false);
    for n in 0..=EXTRA_CONNECTIONS {
        let prepared = async {
            let mut one = options.connect().await?;
            sqlx::raw_sql("begin").execute(&mut one).await?;
            let result: Result<i32, _> = sqlx::query_scalar("select 1").fetch_one(&mut one).await;
            // The rollback ends the transaction of the first connection. A pooler can then assign the session to another connection,
            // together with the prepared statement.
            if n == 0 {
                sqlx::raw_sql("rollback").execute(&mut one).await?;
            }
            Ok::<_, sqlx::Error>((one, result))
        };
        match timeout(MAX_WAIT, prepared).await {
            Ok(Ok((one, result))) => {
                all.push(one);
                if result.is_err_and(|error| is_statement_mixup(&error)) {
                    mixed = Ok(true);
                }
            }
            // No further connection can be opened, so the check ends with its current result. No mix-up can be detected with only one
            // connection.
            Ok(Err(_)) | Err(_) if n > 0 => break,
            Ok(Err(error)) => {
                mixed = Err(error);
                break;
            }
            Err(_) => break,
        }
    }
    close_all(all).await;
    mixed
}

/// Rolls back and closes all connections.
async fn close_all(all: Vec<PgConnection>) {
    for mut one in all {
        let ended = async { sqlx::raw_sql("rollback").execute(&mut one).await.is_ok() && one.close().await.is_ok() };
        let _ = timeout(MAX_WAIT, ended).await;
    }
}

/// Returns whether a notification reaches `listener`. If the notification does not arrive, the LISTEN may remain in a session that is
/// later assigned to another client. This is harmless, because the channel has a unique name and is never notified again.
async fn receives_notification(listener: &mut PgListener, options: &PgConnectOptions, name: &str) -> sqlx::Result<bool> {
    let ours = session_identity(&mut *listener).await?;
    let Ok(other) = timeout(MAX_WAIT, options.connect()).await else { return Ok(false) };
    let mut other = other?;
    let received = async {
        // If the two sessions are identical, or the listener's session has changed, a pooler has just assigned the session to another
        // client. No LISTEN has been sent, so nothing is left behind in the session.
        if session_identity(&mut other).await? == ours || session_identity(&mut *listener).await? != ours {
            return Ok(false);
        }
        listener.listen(name).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("notify \"{name}\""))).execute(&mut other).await?;
        let has_arrived = listener.try_recv().await?.is_some_and(|received| received.channel() == name);
        listener.unlisten(name).await?;
        Ok(has_arrived)
    };
    let has_arrived = timeout(2 * MAX_WAIT, received).await;
    if !matches!(has_arrived, Ok(Ok(true))) {
        let _ = timeout(MAX_WAIT, listener.unlisten(name)).await;
    }
    let _ = timeout(MAX_WAIT, other.close()).await;
    has_arrived.unwrap_or(Ok(false))
}

/// Returns the process id and address of the server session, which identify the session.
async fn session_identity(on: impl sqlx::PgExecutor<'_>) -> sqlx::Result<String> {
    const SESSION: &str = "select pg_catalog.concat_ws(' ', pg_catalog.pg_backend_pid(), pg_catalog.inet_server_addr(), \
        pg_catalog.inet_server_port())";
    sqlx::raw_sql(SESSION).fetch_one(on).await?.try_get(0)
}
