//! Tests payload reads: a handler receives the payload exactly as sent, or the read fails.

use queue_core::{Context, Handler, Job as _, JobId, JobRef, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{Act, Do, TestDb};

/// Job with any JSON as its payload. Returns the payload as the handler received it.
#[job(send_only, output = String)]
#[derive(Serialize, Deserialize)]
struct Anything(Value);

impl Handler for Anything {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(self.0.to_string())
    }
}

/// Job type that can read every payload ever stored under the name `do`.
#[job(send_only, name = "do", output = usize)]
#[derive(Serialize, Deserialize)]
struct AnyDo(Box<serde_json::value::RawValue>);

impl Handler for AnyDo {
    async fn run(self, _: &Context) -> JobResult<usize> {
        Ok(self.0.get().len())
    }
}

/// Stores a payload that an enqueue would reject. `payload` is an SQL expression.
async fn foreign(db: &TestDb, job_type: &str, payload: &str) -> JobId {
    let statement = format!("select queue.enqueue('{job_type}', 'null', '{{\"max_attempts\": 1}}')");
    let id: JobId = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&db.pool).await.unwrap();
    let statement = format!("update queue.job set payload = ({payload})::jsonb where id = {id}");
    sqlx::query(AssertSqlSafe(statement)).execute(&db.pool).await.unwrap();
    id
}

#[tokio::test]
async fn numbers_beyond_64_bits_are_refused_from_sql_as_from_rust() {
    let db = TestDb::new().await;
    let digits = |before: usize| format!("1{}", "0".repeat(before));
    let cases = [
        ("7".to_owned(), None),
        ("18446744073709551615".to_owned(), None),
        ("-9223372036854775808".to_owned(), None),
        ("1.5e300".to_owned(), None),
        ("0.00000000000000000000000000001".to_owned(), None),
        (format!("[\"{}\", {{\"-{}\": null}}]", digits(30), digits(30)), None),
        ("18446744073709551616".to_owned(), Some("$")),
        ("{\"a\": [0, {\"b c\": -9223372036854775809}]}".to_owned(), Some("$.a[1].b c")),
        ("1e400".to_owned(), Some("$")),
        (format!("{}.5", digits(309)), Some("$")),
        ("1e-400".to_owned(), Some("$")),
    ];
    for way in [
        "select queue.enqueue('do', $1::jsonb)",
        "select queue.enqueue('do', $1::jsonb, '{\"key\": \"k\"}')",
        "select queue.enqueue('do', $1::jsonb, '{\"fair\": \"k\"}')",
        "select queue.enqueue('do', $1::jsonb, jsonb_build_object('unique_key', $1, 'on_conflict', 'replace'))",
        "select queue.enqueue('do', '1', jsonb_build_object('meta', jsonb_build_object('n', $1::jsonb)))",
        "select queue.signal(7, 'paid', $1::jsonb)",
    ] {
        for (payload, place) in &cases {
            let result = sqlx::query(way).bind(payload).execute(&db.pool).await.map_err(|error| queue_core::message(&error));
            let Some(place) = place else {
                assert!(result.is_ok(), "{way}, {payload}: {result:?}");
                continue;
            };
            let result = result.unwrap_err();
            let place = if way.contains("'meta'") { place.replacen('$', "$.n", 1) } else { (*place).to_owned() };
            assert!(
                result.contains(&format!("the number at {place} is beyond 64 bits; store it as a string")),
                "{way}, {payload}: {result}"
            );
        }
    }
    db.finish().await;
}

async fn stored(db: &TestDb, id: JobId) -> Vec<u8> {
    sqlx::query_scalar("select jsonb_send(payload) from queue.job where id = $1").bind(id).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn f05_f14_payloads_are_read_back_exactly() {
    let db = TestDb::new().await;
    let whole = [9_007_199_254_740_993_u64, u64::MAX, 0].map(Value::from);
    let plain =
        [json!(null), json!({}), json!([]), json!("bare"), json!(7), json!(true), json!(i64::MIN), json!({"": {"é\u{1}😀\"\\": "\u{7f}"}})];
    let floats = [0.1, 1e300, 5e-324, f64::MAX, -1e-7, 1e16, 123_456_789.123_456_79].map(Value::from);
    let payloads: Vec<Value> = whole.into_iter().chain(plain).chain(floats).collect();
    let mut jobs = Vec::new();
    for payload in &payloads {
        jobs.push(Anything(payload.clone()).enqueue(&db.pool).await.unwrap().id());
    }
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Anything>()).await;
    for (sent, id) in payloads.iter().zip(jobs) {
        assert_eq!(db.state(id).await, Some(JobState::Completed), "{sent}");
        let came: String =
            sqlx::query_scalar("select output #>> '{}' from queue.done where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&came).unwrap(), sent);
    }
    db.finish().await;
}

#[tokio::test]
async fn f07_f09_f16_an_unreadable_job_is_dead_after_its_last_attempt_unchanged_and_affects_no_other() {
    let unreadable = [
        r#"'{"act": {"Sleep": 1e400}}'"#,
        r#"'{"act": {"Ok": 5, "secret": "hunter2"}}'"#,
        r#"'{"act": "OfANewerVersion"}'"#,
        r#"'{"act": "hunter2"}'"#,
        r#"'{"act": {"First": ["Hang"]}}'"#,
        r"'{}'",
        r"'null'",
        r#"'"hunter2"'"#,
        r"'[1, 2'  || repeat(', 3', 80000) || ']'",
        r"repeat('[', 128) || repeat(']', 128)",
        r"repeat('[', 5000) || repeat(']', 5000)",
        r#"repeat('{"act":', 3000) || 'null' || repeat('}', 3000)"#,
    ];
    let db = TestDb::new().await;
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    for payload in unreadable {
        good.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id());
        let id = foreign(&db, "do", payload).await;
        bad.push((payload, id, stored(&db, id).await));
    }
    good.push(foreign(&db, "do", r#"'{"act": {"Ok": "from elsewhere"}, "newer": [[[[1e400]]]]}'"#).await);
    db.run_until_idle(db.worker()).await;
    for id in &good {
        assert_eq!(db.state(*id).await, Some(JobState::Completed));
    }
    for (payload, id, before) in &bad {
        assert_eq!(db.state(*id).await, Some(JobState::Dead), "{payload}");
        assert_eq!(&stored(&db, *id).await, before, "{payload}");
        let (attempts, error): (i16, String) =
            sqlx::query_as("select attempts, error from queue.dead where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
        assert_eq!(attempts, 1, "{payload}");
        assert!(error.starts_with("the payload ") && error.contains("requeue") && error.contains("tests::act::Do"), "{error}");
        assert!(!error.contains("hunter2"), "no value is shown: {error}");
    }
    assert_eq!(
        db.count("select count(*) from effect").await,
        i64::try_from(good.len()).unwrap(),
        "no handler began with another's payload"
    );

    // Simulates a deployment that can read the bad payloads.
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    for (_, id, _) in &bad {
        JobRef::from_id(*id).requeue(&mut connection).await.unwrap();
    }
    db.run_until_idle(Worker::new(db.pool.clone()).register::<AnyDo>()).await;
    for (payload, id, before) in bad {
        assert_eq!((db.state(id).await, stored(&db, id).await), (Some(JobState::Completed), before), "{payload}");
    }
    db.finish().await;
}

#[tokio::test]
async fn f15_a_job_without_a_handler_here_waits_untouched_for_a_worker_that_has_one() {
    let db = TestDb::new().await;
    let unknown = foreign(&db, "anything", "'[1]'").await;
    let likely = foreign(&db, "Do", r#"'{"act": "Hang"}'"#).await;
    let known = foreign(&db, "do", r#"'{"act": {"Ok": ""}}'"#).await;
    db.run_while(db.worker(), db.until(known, JobState::Completed)).await;
    for id in [unknown, likely] {
        assert_eq!(db.state(id).await, Some(JobState::Ready));
    }
    assert_eq!(db.count("select sum(attempts + crashes) from queue.ready").await, 0);
    db.run_while(Worker::new(db.pool.clone()).register::<Anything>(), db.until(unknown, JobState::Completed)).await;
    assert_eq!(db.state(likely).await, Some(JobState::Ready), "names differ by case");
    db.finish().await;
}

#[tokio::test]
async fn f11_of_two_values_of_one_key_the_last_counts() {
    let db = TestDb::new().await;
    let job = foreign(&db, "do", r#"'{"act": "Hang", "act": {"Ok": "last"}}'"#).await;
    db.run_until_idle(db.worker()).await;
    let output: String =
        sqlx::query_scalar("select output::text from queue.done where id = $1").bind(job).fetch_one(&db.pool).await.unwrap();
    assert_eq!(output, "\"last\"");
    db.finish().await;
}
