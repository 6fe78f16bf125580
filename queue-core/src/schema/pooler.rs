//! What a pooler in front of the database does to sessions. Behind one of transactions a LISTEN stays on a session that somebody else has next, who
//! is then told what nobody asked for; and one that does not carry prepared statements gives them to others.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _,
    error::DatabaseError,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::time::timeout;
use uuid::Uuid;

/// A connection, and whether it may listen.
pub struct Listening {
    /// It listens to nothing yet.
    pub listener: PgListener,
    /// Whether what is set in its session stays there.
    pub keeps_session: bool,
}

/// What is said where it does not.
pub const NO_SESSION: &str = "what is notified does not come through: a pooler of transactions, or one without a session to spare, is in front of the \
    database; so nothing is listened for, and what comes is found by polling; give an address that leads to the server itself: QUEUE_DIRECT_URL";

/// So many others are given sessions, to see whether statements of theirs are mixed up.
const OTHERS: usize = 3;

/// One that waits for a session for longer is behind a pooler that has none to spare, and says nothing; so does a notification that is not there by then.
const PATIENCE: Duration = Duration::from_secs(2);

impl Listening {
    /// Connects, and finds out whether it may listen. It begins with a setting: where that is in force, this is its session, for a pooler has refused it
    /// or left it out. Else it listens for a name that nobody has used, and somebody else notifies that: who has no session is told nothing.
    ///
    /// # Errors
    /// As of a connection. One that does not know is taken for one that may not listen.
    pub async fn open(options: PgConnectOptions) -> sqlx::Result<Self> {
        let mark = Uuid::new_v4().to_string();
        let (mut listener, options) = match connect(options.clone().options([("queue.session", mark.as_str())])).await {
            Err(error) if is_refused_setting(&error) => {
                let plain = options.extra_float_digits(None);
                (connect(plain.clone()).await?, plain)
            }
            connected => (connected?, options),
        };
        // In the simple protocol: no pooler mixes that up.
        let is_ours = format!("select pg_catalog.current_setting('queue.session', true) is not distinct from '{mark}'");
        let is_ours: bool = sqlx::raw_sql(AssertSqlSafe(is_ours)).fetch_one(&mut listener).await?.try_get(0)?;
        let keeps_session = is_ours || hears(&mut listener, &options, &mark).await.unwrap_or(false);
        Ok(Self { listener, keeps_session })
    }

    /// Connects, and asks nothing: may not listen.
    ///
    /// # Errors
    /// As of a connection.
    pub async fn deaf(options: PgConnectOptions) -> sqlx::Result<Self> {
        let listener = match connect(options.clone()).await {
            Err(error) if is_refused_setting(&error) => connect(options.extra_float_digits(None)).await?,
            connected => connected?,
        };
        Ok(Self { listener, keeps_session: false })
    }
}

/// Over a pool of one, for that is what the driver's listener wants.
async fn connect(options: PgConnectOptions) -> sqlx::Result<PgListener> {
    PgListener::connect_with(&PgPoolOptions::new().max_connections(1).connect_lazy_with(options)).await
}

/// Whether a pooler refused settings with which a connection was to begin.
pub fn is_refused_setting(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().starts_with("unsupported startup parameter"))
}

/// Whether a statement was refused because a pooler gave a session that others had prepared statements in, or took away the one that had ours.
fn is_mixed_up(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(DatabaseError::code).is_some_and(|code| code == "26000" || code == "42P05")
}

/// Whether prepared statements go to sessions of others here. Each connection names its first as the others do: so one that is given a session that had
/// another before finds a statement of that name, unless the pooler keeps them apart. Where
/// several poolers stand side by side, they may be missed.
///
/// # Errors
/// As of a connection.
pub async fn mixes_up(options: &PgConnectOptions) -> sqlx::Result<bool> {
    let mut all: Vec<PgConnection> = Vec::new();
    let mut mixed = Ok(false);
    for n in 0..=OTHERS {
        let prepared = async {
            let mut one = options.connect().await?;
            sqlx::raw_sql("begin").execute(&mut one).await?;
            let asked: Result<i32, _> = sqlx::query_scalar("select 1").fetch_one(&mut one).await;
            // The first gives its session back, and keeps what it has prepared.
            if n == 0 {
                sqlx::raw_sql("rollback").execute(&mut one).await?;
            }
            Ok::<_, sqlx::Error>((one, asked))
        };
        match timeout(PATIENCE, prepared).await {
            Ok(Ok((one, asked))) => {
                all.push(one);
                if asked.is_err_and(|error| is_mixed_up(&error)) {
                    mixed = Ok(true);
                }
            }
            // One that has no room for more has not mixed anything up.
            Ok(Err(_)) | Err(_) if n > 0 => break,
            Ok(Err(error)) => {
                mixed = Err(error);
                break;
            }
            Err(_) => break,
        }
    }
    end(all).await;
    mixed
}

/// Leaves no session as it is.
async fn end(all: Vec<PgConnection>) {
    for mut one in all {
        let ended = async { sqlx::raw_sql("rollback").execute(&mut one).await.is_ok() && one.close().await.is_ok() };
        let _ = timeout(PATIENCE, ended).await;
    }
}

/// Whether a notification comes through. The name is left behind where it does not, in a session that others have next: nobody notifies it again.
async fn hears(listener: &mut PgListener, options: &PgConnectOptions, name: &str) -> sqlx::Result<bool> {
    let ours = session(&mut *listener).await?;
    let Ok(other) = timeout(PATIENCE, options.connect()).await else { return Ok(false) };
    let mut other = other?;
    let told = async {
        // It would be a pooler's that has just given it away, and nothing is left behind.
        if session(&mut other).await? == ours || session(&mut *listener).await? != ours {
            return Ok(false);
        }
        listener.listen(name).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("notify \"{name}\""))).execute(&mut other).await?;
        let heard = listener.try_recv().await?.is_some_and(|told| told.channel() == name);
        listener.unlisten(name).await?;
        Ok(heard)
    };
    let heard = timeout(2 * PATIENCE, told).await;
    if !matches!(heard, Ok(Ok(true))) {
        let _ = timeout(PATIENCE, listener.unlisten(name)).await;
    }
    let _ = timeout(PATIENCE, other.close()).await;
    heard.unwrap_or(Ok(false))
}

/// Which session of which server.
async fn session(on: impl sqlx::PgExecutor<'_>) -> sqlx::Result<String> {
    const SESSION: &str = "select pg_catalog.concat_ws(' ', pg_catalog.pg_backend_pid(), pg_catalog.inet_server_addr(), \
        pg_catalog.inet_server_port())";
    sqlx::raw_sql(SESSION).fetch_one(on).await?.try_get(0)
}
