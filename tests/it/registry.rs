//! Tests invalid configurations that prevent a worker from starting. A single error names all mistakes and their fixes.

use std::{process::Command, time::Duration};

use queue_core::{
    Context, Failure, Handler, Job, JobResult, JobState, JobType,
    batch::{BatchContext, JobBatch},
    handler, job,
    options::Options,
    registry::RegistryError,
    schedule::Schedule,
};
use queue_worker::{Config, Error, Worker};
use serde::{Deserialize, Serialize};
use tests::{Act, Do, TestDb, eventually};

#[job(send_only, name = "twin")]
#[derive(Serialize, Deserialize)]
struct Castor;

#[job(send_only, name = "pollux", aliases = ["zwilling", "twin"])]
#[derive(Serialize, Deserialize)]
struct Pollux;

/// State types that the job types below require.
struct Mailer;
struct Ledger(u32);

#[job(send_only, state(Mailer, Ledger))]
#[derive(Serialize, Deserialize)]
struct Invoice;

#[job(send_only, state(Ledger))]
#[derive(Serialize, Deserialize)]
struct Balance;

/// Renamed job type, with its earlier names as aliases.
#[job(send_only, name = "new_name", aliases = ["old_name", "older_name"], output = String)]
#[derive(Serialize, Deserialize)]
struct Renamed {
    text: String,
}

/// Hand-written job type with an invalid name.
#[derive(Serialize, Deserialize)]
struct ByHand;

impl JobType for ByHand {
    type Output = ();
    type Cx = queue_core::Context;
    const OPTIONS: Options = Options::new("by hand");
}

/// Hand-written job type with zero attempts.
#[derive(Serialize, Deserialize)]
struct NeverTried;

impl JobType for NeverTried {
    type Output = ();
    type Cx = queue_core::Context;
    const OPTIONS: Options = Options::new("never_tried").max_attempts(0);
}

macro_rules! does_nothing {
    ($($job:ty),*) => {
        $(impl Handler for $job {
            async fn run(self, _: &Context) -> JobResult {
                Ok(())
            }
        })*
    };
}
does_nothing!(Castor, Pollux, Invoice, ByHand, NeverTried);

impl Handler for Balance {
    async fn run(self, cx: &Context) -> JobResult {
        if cx.state::<Ledger>().0 == 7 { Ok(()) } else { Err("another's ledger".into()) }
    }
}

impl Handler for Renamed {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(self.text)
    }
}

/// Returns the error of a worker that does not start.
async fn refusal(worker: Worker) -> Error {
    worker.run(std::future::pending()).await.expect_err("this worker must not start")
}

#[tokio::test]
async fn f26_two_types_of_one_name_are_refused_with_both_named() {
    let db = TestDb::new().await;
    for worker in [db.worker().register::<Castor>().register::<Pollux>(), db.worker().register::<Pollux>().register::<Castor>()] {
        let error = refusal(worker).await;
        assert!(matches!(error, Error::Registry(RegistryError::Duplicate { name: "twin", .. })), "{error:?}");
        let text = error.to_string();
        for part in ["`twin`", "it::registry::Castor`", "it::registry::Pollux`", "name = .."] {
            assert!(text.contains(part), "{part} in: {text}");
        }
    }
    db.run_until_idle(db.worker().register::<Castor>().register::<Castor>()).await;
    db.finish().await;
}

#[test]
fn f27_a_binary_without_job_types_is_refused_with_the_fix() {
    let ended = Command::new(env!("CARGO_BIN_EXE_empty-worker")).output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    for part in ["no handlers are linked into this binary", "use my_app as _;", "queue_worker::main!(my_app)", "Worker::register"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    assert_eq!(text.trim().lines().count(), 1, "{text}");
}

#[tokio::test]
async fn f28_all_missing_state_is_listed_in_one_error() {
    let db = TestDb::new().await;
    let worker = || Worker::new(db.pool.clone()).register::<Invoice>().register::<Balance>();
    let text = refusal(worker()).await.to_string();
    for part in [
        "it::registry::Mailer` (for `invoice`)",
        "it::registry::Ledger` (for `invoice`)",
        "it::registry::Ledger` (for `balance`)",
        "Worker::state",
    ] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let text = refusal(worker().state(Ledger(7))).await.to_string();
    assert!(text.contains("Mailer") && !text.contains("Ledger"), "{text}");

    Balance.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(worker().state(Mailer).state(Ledger(1)).state(Ledger(7))).await;
    assert_eq!(db.count("select count(*) from queue.failure").await, 0, "the last state of a type counts");
    db.finish().await;
}

#[tokio::test]
async fn f19_f23_manually_implemented_options_are_checked_too() {
    let db = TestDb::new().await;
    let error = refusal(db.worker().register::<ByHand>()).await.to_string();
    assert!(error.contains("it::registry::ByHand`") && error.contains("`by hand`"), "{error}");
    let error = refusal(db.worker().register::<NeverTried>()).await.to_string();
    assert!(error.contains("it::registry::NeverTried`") && error.contains("max_attempts is 0"), "{error}");
    assert!(matches!(ByHand.enqueue(&db.pool).await, Err(queue_core::Error::InvalidName { .. })));
    assert!(matches!(NeverTried.enqueue(&db.pool).await, Err(queue_core::Error::OutOfRange { what: "max_attempts", .. })));
    db.finish().await;
}

#[tokio::test]
async fn a_setting_out_of_range_is_refused_by_its_name() {
    let db = TestDb::new().await;
    let mut slow = Config::default();
    slow.poll_interval = Duration::from_hours(2);
    let mut bulky = Config::default();
    bulky.batch = 1_000_000;
    let kept_for = |retention| {
        let mut config = Config::default();
        config.retention = retention;
        db.worker().config(config)
    };
    let (most, second) = (Duration::from_hours(100 * 24), Duration::from_secs(1));
    let instead = "by its own `retain = \"400d\"`, dead letters by `dead_retention`";
    for (worker, part) in [
        (db.worker().concurrency(0), "concurrency is 0"),
        (db.worker().queue("mail", 0), "concurrency is 0"),
        (db.worker().queue("mail", usize::MAX), "concurrency is"),
        (db.worker().lease_ttl(Duration::from_millis(999)), "lease_ttl is 999ms"),
        (db.worker().lease_ttl(Duration::MAX), "lease_ttl is"),
        (db.worker().grace(Duration::MAX), "grace is"),
        (db.worker().config(slow), "poll_interval is 2h"),
        (db.worker().config(bulky), "batch is 1000000"),
        (kept_for(Duration::ZERO), "retention is 0s"),
        (kept_for(most + second), "retention is 8640001s; it must be 1s to 100d"),
        (kept_for(4 * most), instead),
        (db.worker().queue("'; drop table", 1), "queue name"),
        (db.worker().queue("", 1), "queue name"),
    ] {
        let text = refusal(worker).await.to_string();
        assert!(text.contains(part), "{part} in: {text}");
    }
    for retention in [second, most] {
        kept_for(retention).run(std::future::ready(())).await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn a_job_stored_under_an_alias_is_run_by_the_type_that_has_it() {
    let db = TestDb::new().await;
    for name in ["old_name", "older_name", "new_name"] {
        let enqueue = "select queue.enqueue($1, jsonb_build_object('text', $1))";
        sqlx::query(enqueue).bind(name).execute(&db.pool).await.unwrap();
    }
    Renamed { text: "fresh".into() }.enqueue(&db.pool).await.unwrap();
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Renamed>()).await;
    let ran: Vec<(String, String)> =
        sqlx::query_as("select job_type, output #>> '{}' from queue.jobs where state = 'completed' order by id")
            .fetch_all(&db.pool)
            .await
            .unwrap();
    let row = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(ran, [row("old_name", "old_name"), row("older_name", "older_name"), row("new_name", "new_name"), row("new_name", "fresh")]);
    db.finish().await;
}

#[tokio::test]
async fn only_registered_types_run_once_one_is_registered() {
    let db = TestDb::new().await;
    let other = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let castor = Castor.enqueue(&db.pool).await.unwrap().id();
    let castors = Worker::new(db.pool.clone()).register::<Castor>();
    db.run_while(castors, db.until(castor, JobState::Completed)).await;
    assert_eq!(db.state(other).await, Some(JobState::Ready));
    db.run_while(Worker::new(db.pool.clone()), db.until(other, JobState::Completed)).await;
    db.finish().await;
}

/// Module that represents a crate with job types only. The functions below represent the crate with the handlers.
mod domain {
    use queue_core::job;
    use serde::{Deserialize, Serialize};

    #[job(send_only, output = usize)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Welcome {
        pub(super) name: String,
    }

    #[job(send_only, batch = 10)]
    #[derive(Serialize, Deserialize)]
    pub(super) struct Notify {
        pub(super) number: u32,
    }
}

#[handler]
async fn welcome(job: domain::Welcome, _: &Context) -> JobResult<usize> {
    Ok(job.name.len())
}

#[handler]
async fn notify(batch: &mut JobBatch<domain::Notify>, _: &BatchContext) -> JobResult {
    for job in batch.iter_mut().filter(|job| job.payload().number == 3) {
        job.fail(Failure::terminal("no third"));
    }
    Ok(())
}

#[tokio::test]
async fn a_function_handles_the_jobs_of_a_type_that_has_no_handler_itself() {
    let db = TestDb::new().await;
    let welcomed = domain::Welcome { name: "Ada".into() }.enqueue(&db.pool).await.unwrap().id();
    domain::Notify::enqueue_all((1..=3).map(|number| domain::Notify { number }), &db.pool).await.unwrap();
    db.run_until_idle(Worker::new(db.pool.clone()).register::<welcome>().register_batch::<notify>()).await;
    let output: i64 =
        sqlx::query_scalar("select output::bigint from queue.jobs where id = $1").bind(welcomed).fetch_one(&db.pool).await.unwrap();
    assert_eq!(output, 3);
    let counted = "select count(*) from queue.jobs where job_type = 'notify' and state = ";
    assert_eq!(db.count(&format!("{counted} 'completed'")).await, 2);
    assert_eq!(db.count(&format!("{counted} 'dead'")).await, 1);
    db.finish().await;
}

/// Scheduled job type whose handler is in another program.
#[job(send_only, name = "registry_elsewhere", every = "1d")]
#[derive(Default, Serialize, Deserialize)]
struct Elsewhere;

/// Handler that only the other program links.
struct Program;

impl queue_core::registry::JobRunner for Program {
    type Job = Elsewhere;

    async fn run_job(_: Elsewhere, _: &Context) -> JobResult {
        Ok(())
    }
}

#[tokio::test]
async fn a_schedule_is_created_only_by_workers_that_have_the_handler_of_its_type() {
    let db = TestDb::new().await;
    let created = "select count(*) from queue.schedule where name = 'registry_elsewhere'";
    // A worker declares its schedules in name order, so it would create `registry_elsewhere` before `registry_last`.
    let daily = Schedule::every(Duration::from_hours(24)).job(&Castor);
    let last = "select count(*) from queue.schedule where name = 'registry_last'";
    let linked = Worker::new(db.pool.clone()).schedule("registry_last", daily);
    db.run_while(linked, eventually("the last schedule is created", async || db.count(last).await == 1)).await;
    assert_eq!(db.count(created).await, 0);
    let other = Worker::new(db.pool.clone()).register::<Program>();
    db.run_while(other, eventually("the schedule is created", async || db.count(created).await == 1)).await;
    db.finish().await;
}
