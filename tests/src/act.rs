//! Job type whose payload specifies the actions of its handler. The job's effects are rows of a table that every process can read.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use queue_core::{Context, Failure, Handler, JobId, JobResult, job};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// Job that performs `act`. Every attempt first writes a row to the table `effect`, except with `AbortImmediately`.
#[job(max_attempts = 3, backoff = fixed("50ms"), timeout = "5s", output = String)]
#[derive(Serialize, Deserialize)]
pub struct Do {
    /// Action of the handler.
    pub act: Act,
}

/// Action of a handler, serialized in the payload of [`Do`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Act {
    /// Returns this text.
    Ok(String),
    /// Returns an error with this text.
    Fail(String),
    /// Fails every attempt before the attempt with this number, which succeeds.
    FailUntil(u32),
    /// Fails with a terminal error.
    Terminal(String),
    /// Fails with an explicit retry delay in ms.
    RetryIn(u64),
    /// Snoozes for the first number of ms, unless at least the second number of attempts has been recorded.
    Snooze(u64, i64),
    /// Panics with a `&str`.
    Panic,
    /// Panics with a `String` of this length in bytes.
    PanicLong(usize),
    /// Panics with a struct.
    PanicWithStruct,
    /// Panics while holding a mutex that all attempts of the process share.
    PanicWithLock,
    /// Panics after an await.
    PanicLate,
    /// Sleeps asynchronously for this number of ms.
    Sleep(u64),
    /// Blocks the thread for this number of ms, without an await.
    Block(u64),
    /// Awaits forever.
    Hang,
    /// Exits the process with this code.
    Exit(i32),
    /// Aborts the process with SIGABRT.
    Abort,
    /// Crashes the process with a stack overflow.
    Overflow,
    /// Aborts the process with an allocation larger than any machine's memory.
    OutOfMemory,
    /// Aborts the process with a panic during unwinding.
    PanicTwice,
    /// Returns a text that contains NUL.
    Nul,
    /// Returns an error that contains NUL.
    FailNul,
    /// Runs the first action on the first attempt, and the second action on later attempts.
    First(Box<Act>, Box<Act>),
    /// Sleeps asynchronously for this number of ms, then runs the action.
    Slowly(u64, Box<Act>),
    /// Aborts the process with SIGABRT before the effect is recorded.
    AbortImmediately,
    /// Returns an error of this length in bytes, made of two-byte characters.
    FailLong(usize),
    /// Waits for cancellation, then runs the action.
    UntilCancelled(Box<Act>),
    /// Waits until the table `go` exists, records the attempt again, then runs the action.
    UntilGo(Box<Act>),
    /// Runs the first action on the first recorded attempt, and the second action on later attempts. Unlike `First`, this action counts
    /// released attempts.
    FirstThen(Box<Act>, Box<Act>),
}

impl Handler for Do {
    async fn run(self, cx: &Context) -> JobResult<String> {
        if matches!(self.act, Act::AbortImmediately) {
            std::process::abort();
        }
        record(cx).await?;
        match self.act.due(cx).await? {
            Act::Ok(text) => Ok(text),
            Act::Fail(text) => Err(text.into()),
            Act::FailUntil(attempt) if cx.attempt() < attempt => Err(format!("not before attempt {attempt}").into()),
            Act::FailUntil(_) => Ok(String::new()),
            Act::Terminal(text) => Err(Failure::terminal(text)),
            Act::RetryIn(ms) => Err(Failure::retry_in(Duration::from_millis(ms), "later")),
            Act::Snooze(ms, times) if effects(cx.pool(), cx.id()).await? < times => Err(Failure::snooze(Duration::from_millis(ms))),
            Act::Snooze(..) => Ok("awake".to_owned()),
            Act::Panic => panic!("as told"),
            Act::PanicLong(bytes) => panic!("{}", "x".repeat(bytes)),
            Act::PanicWithStruct => std::panic::panic_any(Struct),
            Act::PanicWithLock => {
                static LOCK: Mutex<u32> = Mutex::new(0);
                let _held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
                panic!("holding a lock")
            }
            Act::PanicLate => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                panic!("late")
            }
            Act::Sleep(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(String::new())
            }
            Act::Block(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(String::new())
            }
            Act::Hang => std::future::pending().await,
            Act::Exit(code) => std::process::exit(code),
            Act::Abort => std::process::abort(),
            Act::Overflow => Ok(deeper(0).to_string()),
            Act::OutOfMemory => Ok(std::hint::black_box(Vec::<u8>::with_capacity(isize::MAX.unsigned_abs())).capacity().to_string()),
            Act::PanicTwice => {
                let _panics_too = PanicsWhenDropped;
                panic!("as told")
            }
            Act::Nul => Ok("a\0b".to_owned()),
            Act::FailNul => Err("a\0b".into()),
            Act::FailLong(bytes) => Err("é".repeat(bytes / 2).into()),
            Act::First(..) | Act::Slowly(..) | Act::AbortImmediately | Act::UntilCancelled(_) | Act::UntilGo(_) | Act::FirstThen(..) => {
                Err(Failure::terminal("not a last act"))
            }
        }
    }
}

impl Act {
    /// Unwraps nested actions, performing the waits that they specify. Returns the innermost action, which has not run yet.
    async fn due(mut self, cx: &Context) -> Result<Self, sqlx::Error> {
        loop {
            self = match self {
                Self::First(first, _) if cx.attempt() == 1 => *first,
                Self::First(_, later) => *later,
                Self::Slowly(ms, then) => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    *then
                }
                Self::UntilCancelled(then) => {
                    cx.cancelled().cancelled().await;
                    *then
                }
                Self::UntilGo(then) => {
                    while !sqlx::query_scalar::<_, bool>("select to_regclass('go') is not null").fetch_one(cx.pool()).await? {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    record(cx).await?;
                    *then
                }
                Self::FirstThen(first, later) => *if effects(cx.pool(), cx.id()).await? == 1 { first } else { later },
                last => return Ok(last),
            };
        }
    }
}

struct Struct;

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("and once more");
    }
}

/// Recurses endlessly, in a form that the compiler does not detect.
fn deeper(level: u64) -> u64 {
    let frame = std::hint::black_box([level; 64]);
    if frame[0] == u64::MAX { 0 } else { deeper(level + 1) + std::hint::black_box(&frame)[1] }
}

/// Records this attempt in `effect`.
pub async fn record(cx: &Context) -> Result<(), sqlx::Error> {
    let attempt = i32::try_from(cx.attempt()).unwrap_or(i32::MAX);
    sqlx::query("insert into effect (job, attempt, pid) values ($1, $2, $3)")
        .bind(cx.id())
        .bind(attempt)
        .bind(std::process::id().cast_signed())
        .execute(cx.pool())
        .await?;
    Ok(())
}

/// Returns the number of attempts of a job that are recorded in `effect`.
///
/// # Errors
/// Returns a database error if the query fails.
pub async fn effects(pool: &PgPool, id: JobId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("select count(*) from effect where job = $1").bind(id).fetch_one(pool).await
}
