//! Tests panics. A panic is an ordinary failure, wherever it happens, and the process survives.

use std::{error, fmt, panic::panic_any};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize, Serializer};
use tests::{Act, Do, TestDb, effects};

#[tokio::test]
#[ignore = "deep"]
async fn f49_panics_of_every_kind_are_ordinary_failures() {
    let db = TestDb::new().await;
    let kinds = [Act::Panic, Act::PanicLong(100_000), Act::PanicWithStruct, Act::PanicWithLock, Act::PanicLate];
    let mut jobs = Vec::new();
    for kind in kinds.iter().cycle().take(400) {
        jobs.push(Do { act: kind.clone() }.enqueue(&db.pool).max_attempts(2).await.unwrap().id());
    }
    db.run_while(db.worker(), async {
        for id in &jobs {
            db.until(*id, JobState::Dead).await;
        }
        let after = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
        db.until(after, JobState::Completed).await;
        assert_eq!(effects(&db.pool, after).await.unwrap(), 1, "the same worker continues");
    })
    .await;
    let errors: Vec<(String, i64)> =
        sqlx::query_as("select left(error, 30), count(*) from queue.failure group by 1 order by 1").fetch_all(&db.pool).await.unwrap();
    let texts = ["as told", "holding a lock", "late", "with a payload that is not a string", "xxxxxxxxxxxxxxxxxxxxxxxx"];
    assert_eq!(errors, texts.map(|text| (format!("panicked: {text}").chars().take(30).collect(), 160)));
    assert_eq!(db.count("select count(*) from queue.dead where crashes > 0 or attempts <> 2").await, 0, "no crash, two attempts each");
    db.finish().await;
}

/// Job that panics at an unusual point.
#[job(send_only, timeout = "50ms", max_attempts = 1, output = Bomb)]
#[derive(Serialize, Deserialize)]
struct Mined {
    place: Place,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Place {
    /// Panics while the value of another panic is dropped.
    PanicValue,
    /// Panics while the future is dropped at its timeout.
    Timeout,
    /// Panics while a local variable is dropped at the handler's end.
    Local,
    /// Panics while the error is displayed.
    Display,
    /// Panics while the error is dropped.
    Error,
    /// Panics while the output is serialized.
    Output,
}

impl Handler for Mined {
    async fn run(self, _: &Context) -> JobResult<Bomb> {
        match self.place {
            Place::PanicValue => panic_any(Bomb),
            Place::Timeout => {
                let _local = Bomb;
                std::future::pending().await
            }
            Place::Local => {
                let _local = Bomb;
                Err("never told".into())
            }
            Place::Display => Err(Unspeakable(None).into()),
            Place::Error => Err(Unspeakable(Some(Bomb)).into()),
            Place::Output => Ok(Bomb),
        }
    }
}

/// Value that panics when it is dropped or serialized.
#[derive(Debug, Deserialize)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Panics if the value is dropped while no panic is in progress. A second panic during unwinding would abort the process, which
        // another test covers.
        assert!(std::thread::panicking(), "a bomb was dropped");
    }
}

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("a bomb was serialized")
    }
}

/// Error that panics when it is displayed or dropped.
#[derive(Debug)]
struct Unspeakable(Option<Bomb>);

impl error::Error for Unspeakable {}

impl fmt::Display for Unspeakable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(self.0.is_some(), "a bomb was displayed");
        f.write_str("unspeakable")
    }
}

#[tokio::test]
async fn f49_a_panic_at_an_unusual_point_is_a_failure_and_costs_no_slot() {
    let db = TestDb::new().await;
    let places = [Place::PanicValue, Place::Timeout, Place::Local, Place::Display, Place::Error, Place::Output];
    let mut mined = Vec::new();
    for place in places.into_iter().cycle().take(24) {
        mined.push((place, Mined { place }.enqueue(&db.pool).await.unwrap().id()));
    }
    db.run_while(Worker::new(db.pool.clone()).register::<Mined>().register::<Do>().concurrency(2), async {
        let innocent = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
        db.until(innocent, JobState::Completed).await;
        for (_, id) in &mined {
            db.until(*id, JobState::Dead).await;
        }
    })
    .await;
    for (place, id) in mined {
        let errors: Vec<String> =
            sqlx::query_scalar("select error from queue.failure where id = $1").bind(id).fetch_all(&db.pool).await.unwrap();
        assert_eq!(errors.len(), 1, "{place:?}: {errors:?}");
        assert!(errors[0].starts_with("panicked: ") || matches!(place, Place::Error), "{place:?}: {errors:?}");
    }
    db.finish().await;
}
