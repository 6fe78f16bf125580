//! Tests enqueue statements that are rendered for another driver. Such a statement runs in the other driver's transaction, and creates the
//! same job as an enqueue through sqlx.

use std::time::Duration;

use queue_core::{
    EnqueueOutcome, Error, Job as _, JobHandle, JobState, Store,
    drivers::{Rendered, Statement},
    job,
    operate::JobRecord,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tests::{Act, Do, TestDb};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Job type at version 2, with non-default options.
#[job(send_only, name = "rendered_report", version = 2, queue = "reports", priority = 7, max_attempts = 3, unique(fields(month), while = queued))]
#[derive(Serialize, Deserialize)]
struct Report {
    month: u8,
    text: String,
}

fn report(month: u8) -> Report {
    Report { month, text: "it's \"all\" ü\n$1".to_owned() }
}

/// Sends the rendered statement as another driver would.
async fn send<J>(on: &mut PgConnection, rendered: &Rendered<J>) -> sqlx::Result<JobHandle<J>> {
    let statement = rendered.parameters().into_iter().fold(sqlx::query_as(rendered.sql()), sqlx::query::QueryAs::bind);
    let (id, outcome): (i64, String) = statement.fetch_one(on).await?;
    Ok(rendered.handle(id, &outcome))
}

#[tokio::test]
async fn a_job_enqueued_by_another_driver_equals_one_of_ours() {
    type JobOptions = (String, String, (i16, i16, i16), JobState, Option<String>, Option<String>);
    /// Returns the properties that must not depend on the driver.
    fn options_of(record: JobRecord) -> JobOptions {
        let texts = [record.meta, record.payload].map(|text| text.map(|text| text.get().to_owned()));
        let [meta, payload] = texts;
        (record.queue, record.job_type, (record.version, record.priority, record.max_attempts), record.state, meta, payload)
    }
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    let (wait, at) = (Duration::from_hours(1), chrono::DateTime::from_timestamp(4_102_444_800, 0).unwrap());
    let mut pairs = Vec::new();
    macro_rules! pair {
        ($job:expr, $($calls:tt)*) => {
            let ours = $job.enqueue(&mut *on) $($calls)*.await.unwrap().job_ref();
            let rendered = $job.statement() $($calls)*.build().unwrap();
            pairs.push((ours, send(&mut on, &rendered).await.unwrap().job_ref()));
        };
    }
    pair!(quick(),);
    pair!(quick(), .queue("mail").priority(3).max_attempts(2).meta("tenant", "acme"));
    pair!(quick(), .after(wait).fair("a"));
    pair!(quick(), .at(at).expires_in(wait));
    pair!(report(1), .unique(uuid::Uuid::new_v4().to_string()));
    for (ours, theirs) in pairs {
        assert_ne!(ours.id(), theirs.id());
        let (ours, theirs) = (ours.find(&mut *on).await.unwrap(), theirs.find(&mut *on).await.unwrap());
        let due = [&ours, &theirs].map(|record| record.run_at.map_or(0, |at| at.timestamp()));
        // The two jobs were enqueued one after the other, so their due times differ a little.
        assert!((0..60).contains(&(due[1] - due[0])), "{due:?}");
        assert_eq!(options_of(ours), options_of(theirs));
    }
    drop(on);
    db.finish().await;
}

#[tokio::test]
async fn a_job_enqueued_by_another_driver_exists_if_and_only_if_its_transaction_commits() {
    let db = TestDb::new().await;
    let rendered = quick().statement().key("a").build().unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let gone = send(&mut tx, &rendered).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let kept = [send(&mut tx, &rendered).await.unwrap(), send(&mut tx, &rendered).await.unwrap()];
    tx.commit().await.unwrap();
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(gone.id()).await, None);
    for job in kept {
        assert_eq!(db.state(job.id()).await, Some(JobState::Completed));
    }
    db.finish().await;
}

#[tokio::test]
async fn the_handle_of_a_rendered_job_returns_its_outcome() {
    let db = TestDb::new().await;
    let store = Store::new("elsewhere").unwrap();
    let mut on = db.pool.acquire().await.unwrap();
    queue_core::migrate(&mut on, store).await.unwrap();
    let build = |statement: Statement<Report>| statement.store(store).build().unwrap();
    let first = send(&mut on, &build(report(5).statement())).await.unwrap();
    let second = send(&mut on, &build(report(5).statement())).await.unwrap();
    assert_eq!((first.id(), first.outcome(), first.store()), (second.id(), EnqueueOutcome::New, store));
    assert_eq!(second.outcome(), EnqueueOutcome::Kept);
    assert_eq!(first.find(&mut *on).await.unwrap().queue, "reports");
    drop(on);
    db.finish().await;
}

#[test]
fn a_job_that_cannot_be_stored_is_refused_before_it_is_sent_and_no_payload_is_shown() {
    let refused = quick().statement().max_attempts(0).build().unwrap_err();
    assert!(matches!(refused, Error::OutOfRange { what: "max_attempts", .. }), "{refused}");
    let refused = Report { month: 1, text: "\0".to_owned() }.statement().build().unwrap_err();
    assert!(matches!(refused, Error::Payload { .. }), "{refused}");
    let statement = Report { month: 1, text: "hunter2".to_owned() }.statement();
    assert!(!format!("{statement:?}").contains("hunter2"));
    assert!(!format!("{:?}", statement.build().unwrap()).contains("hunter2"));
}
