//! Tests invalid enqueues. In Rust, they return typed errors before any SQL is sent. The SQL functions reject the same values. No error
//! contains a payload.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::{Error, Job, JobId, JobState, PayloadError, Store, job};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use sqlx::{AssertSqlSafe, Executor as _};
use tests::{Act, Do, TestDb};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Payload with a field for each kind of value that can be invalid.
#[job(send_only)]
#[derive(Default, Serialize, Deserialize)]
struct Values {
    text: String,
    number: f64,
    wide: i128,
    keys: BTreeMap<String, u8>,
    raw: Option<Box<RawValue>>,
}

fn raw(json: &str) -> Values {
    Values { raw: Some(RawValue::from_string(json.to_owned()).unwrap()), ..Values::default() }
}

/// Payload that is a single string, so that its size is known.
#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Text(String);

/// Enqueues an invalid job in a transaction, and checks that the transaction stays usable. Returns the error.
async fn refused(db: &TestDb, job: impl Job) -> PayloadError {
    let mut tx = db.pool.begin().await.unwrap();
    let sound = quick().enqueue(&mut tx).await.unwrap().id();
    let error = job.enqueue(&mut tx).await.expect_err("this payload must be refused");
    assert!(error.to_string().starts_with("the payload of `"), "{error}");
    tx.commit().await.unwrap();
    assert_eq!(db.state(sound).await, Some(JobState::Ready), "no SQL was sent for what was refused");
    match error {
        Error::Payload { source, .. } => source,
        other => panic!("of another kind: {other}"),
    }
}

#[tokio::test]
async fn f01_a_nul_in_a_payload_is_refused_with_its_path() {
    let db = TestDb::new().await;
    let key = BTreeMap::from([("a\0".to_owned(), 1)]);
    for (job, at) in [
        (Values { text: "a\0b".into(), ..Values::default() }, "$.text"),
        (Values { keys: key, ..Values::default() }, r#"$.keys["a\u0000"]"#),
        (raw(r#"[1, {"b": "\u0000"}]"#), "$.raw[1].b"),
    ] {
        let error = refused(&db, job).await;
        assert!(matches!(&error, PayloadError::Nul { path } if path == at), "{error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn f04_f05_f06_f08_values_that_cannot_be_read_back_are_refused() {
    let db = TestDb::new().await;
    for half in [r#""\ud800""#, r#"{"\udc00": 1}"#] {
        assert!(matches!(refused(&db, raw(half)).await, PayloadError::LoneSurrogate { .. }), "{half}");
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = refused(&db, Values { number, ..Values::default() }).await;
        assert!(matches!(&error, PayloadError::NotFinite { path } if path == "$.number"), "{error}");
    }
    for wide in [i128::from(u64::MAX) + 1, i128::from(i64::MIN) - 1] {
        assert!(matches!(refused(&db, Values { wide, ..Values::default() }).await, PayloadError::NumberTooLarge { .. }));
    }
    for number in ["1e400", r#"{"a":1e131071}"#, "-1e-400000", "18446744073709551616"] {
        let error = refused(&db, raw(number)).await;
        assert!(matches!(error, PayloadError::NumberTooLarge { .. }), "{number}: {error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn f09_depth_is_accepted_up_to_the_readable_maximum() {
    let db = TestDb::new().await;
    let nested = |depth: usize| raw(&("[".repeat(depth) + &"]".repeat(depth)));
    for depth in [127, 128, 5_000, 100_000] {
        assert_eq!(refused(&db, nested(depth)).await, PayloadError::TooDeep { limit: 127 }, "within the struct's own level");
    }
    nested(126).enqueue(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f13_a_payload_one_byte_above_the_limit_is_refused_and_one_at_the_limit_is_stored() {
    let db = TestDb::new().await;
    let largest = Text("x".repeat(262_142)).enqueue(&db.pool).await.unwrap().id();
    let size: i32 = sqlx::query_scalar("select octet_length(payload::text) from queue.job where id = $1")
        .bind(largest)
        .fetch_one(&db.pool)
        .await
        .unwrap();
    assert_eq!(size, 262_144);
    assert_eq!(refused(&db, Text("x".repeat(262_143))).await, PayloadError::TooLarge { size: 262_145, limit: 262_144 });
    for text in ["\u{1}".repeat(50_000), "é".repeat(131_072), "x".repeat(50 << 20)] {
        let error = refused(&db, Text(text)).await;
        assert!(matches!(error, PayloadError::TooLarge { limit: 262_144, .. }), "{error}");
    }
    db.finish().await;
}

#[tokio::test]
async fn f25_a_time_that_no_database_holds_is_refused_before_any_sql() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let second = chrono::TimeDelta::seconds(1);
    for time in
        [DateTime::<Utc>::MAX_UTC, DateTime::<Utc>::MIN_UTC, DateTime::UNIX_EPOCH - second, "+10000-01-01T00:00:00Z".parse().unwrap()]
    {
        let error = quick().enqueue(&mut tx).at(time).await.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { what: "the time to run at", .. }), "{error}");
    }
    for wait in [Duration::MAX, Duration::from_secs(94_608_000_001)] {
        let error = quick().enqueue(&mut tx).after(wait).await.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }) && error.to_string().contains("1970 to 9999"), "{error}");
    }
    quick().enqueue(&mut tx).after(Duration::from_hours(26_280_000)).await.unwrap();
    tx.commit().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn f19_f23_names_and_attempts_out_of_range_are_refused_before_any_sql() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    let long = "x".repeat(65);
    for name in ["'; DROP TABLE queue.job; --", "a\"b", "100%", "a\nb", "😀", "", " ", "a/b", "*", "\0", &long] {
        let error = quick().enqueue(&mut tx).queue(name).await.unwrap_err();
        assert!(matches!(error, Error::InvalidName { what: "queue name", most: 64, .. }), "{name:?}: {error}");
        assert!(error.to_string().is_ascii() && !error.to_string().contains('\n'), "{error}");
    }
    for attempts in [0, -1, i16::MIN] {
        let error = quick().enqueue(&mut tx).max_attempts(attempts).await.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { what: "max_attempts", .. }), "{error}");
    }
    quick().enqueue(&mut tx).queue(&long[1..]).await.unwrap();
    tx.commit().await.unwrap();
    db.run_until_idle(db.worker()).await;
    db.finish().await;
}

/// Invalid calls to SQL functions, each with a part of its error message.
const REFUSED: [(&str, &str); 38] = [
    ("insert_job(null, '{}')", "only run_at may be null"),
    ("insert_job('do', null)", "only run_at may be null"),
    ("insert_job('do', '{}', null)", "only run_at may be null"),
    ("insert_job('do', '{}', 'mail', null)", "only run_at may be null"),
    ("insert_job('do', '{}', 'mail', 1::smallint, null)", "only run_at may be null"),
    ("insert_job('do', '{}', max_attempts => 0::smallint)", "max_attempts must be at least 1"),
    ("insert_job('do', '{}', max_attempts => (-32768)::smallint)", "max_attempts must be at least 1"),
    ("insert_job('do', '{}', '')", "lane_queue_is_a_name"),
    ("insert_job('do', '{}', '''; drop table queue.job; --')", "lane_queue_is_a_name"),
    ("insert_job('do', '{}', run_at => 'infinity')", "run_at must be a time within the years 1970 to 9999, not infinity"),
    ("insert_job('do', '{}', meta => '[1]')", "the option meta must be an object of at most 4096 bytes"),
    (
        "insert_job('do', '{}', meta => jsonb_build_object('a', repeat('x', 4088)))",
        "the option meta must be an object of at most 4096 bytes",
    ),
    ("enqueue('do', '{}', '{\"queue\": \"\"}')", "the option queue must be a name"),
    ("enqueue('do', '{}', jsonb_build_object('queue', e'a\\nb'))", "the option queue must be a name"),
    ("enqueue('do', '{}', jsonb_build_object('queue', repeat('x', 65)))", "the option queue must be a name"),
    ("enqueue('do', '{}', '{\"queue\": 7}')", "the option queue must be a name: 1 to 64 of A-Z a-z 0-9 _ . : -, not 7"),
    ("enqueue('do', '{}', '{\"priority\": \"high\"}')", "the option priority must be a whole number from -32768 to 32767, not \"high\""),
    ("enqueue('do', '{}', '{\"priority\": \"7\"}')", "the option priority must be a whole number"),
    ("enqueue('do', '{}', '{\"priority\": 32768}')", "the option priority must be a whole number"),
    ("enqueue('do', '{}', '{\"priority\": 1.5}')", "the option priority must be a whole number"),
    ("enqueue('do', '{}', '{\"max_attempts\": 0}')", "the option max_attempts must be a whole number from 1 to 32767, not 0"),
    ("enqueue('do', '{}', '{\"max_attempts\": 1e9}')", "the option max_attempts must be a whole number"),
    ("enqueue('do', '{}', '{\"run_at\": \"infinity\"}')", "the option run_at must be a time, within the years 1970 to 9999"),
    ("enqueue('do', '{}', '{\"run_at\": \"soon\"}')", "the option run_at must be a time"),
    ("enqueue('do', '{}', '{\"run_at\": 7}')", "the option run_at must be a time"),
    ("enqueue('do', '{}', '{\"after\": \"soon\"}')", "the option after must be an interval or a number of seconds"),
    ("enqueue('do', '{}', '{\"after\": 1e30}')", "the option after must be an interval or a number of seconds"),
    ("enqueue('do', '{}', '{\"after\": 1, \"run_at\": \"2999-01-01T00:00:00Z\"}')", "the option run_at excludes the option after"),
    ("enqueue_flow(repeat('f', 4090), '[{\"name\": \"a\", \"job_type\": \"do\", \"payload\": {}}]')", "the flow name is too long"),
    ("enqueue('do', '{}', '{\"meta\": [1]}')", "the option meta must be an object of at most 4096 bytes"),
    ("enqueue('do', '{}', jsonb_build_object('meta', jsonb_build_object('a', repeat('x', 4088))))", "the option meta must be an object"),
    (
        "enqueue('do', '{}', '{\"colour\": \"red\"}')",
        "unknown option \"colour\"; the options are queue, priority, max_attempts, run_at, after, expires_at,",
    ),
    ("enqueue('do', '{}', '[]')", "the options must be a JSON object"),
    ("enqueue('do', '{}', null)", "the options must be a JSON object"),
    ("enqueue('a/b', '{}')", "lane_job_type_is_a_name"),
    ("enqueue('do', null)", "only run_at may be null"),
    ("enqueue('do', to_jsonb(repeat('x', 262143)))", "the payload has 262145 bytes, the limit is 262144"),
    ("enqueue('do', '{\"a\":1e131071,\"b\":1e131071}')", "the payload has 262158 bytes"),
];

#[tokio::test]
async fn f08_f13_f19_the_sql_function_refuses_what_the_rust_call_refuses() {
    let db = TestDb::new().await;
    for (call, text) in REFUSED {
        let refused = sqlx::query(AssertSqlSafe(format!("select queue.{call}"))).execute(&db.pool).await;
        let error = refused.err().unwrap_or_else(|| panic!("{call} was taken"));
        assert!(error.to_string().contains(text), "{call}: {error}");
        if text.contains("option") {
            assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("22023"), "{call}");
        }
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    let largest: JobId = sqlx::query_scalar("select queue.enqueue('do', to_jsonb(repeat('x', 262142)))").fetch_one(&db.pool).await.unwrap();
    assert_eq!(db.state(largest).await, Some(JobState::Ready));
    db.finish().await;
}

#[tokio::test]
async fn f18_a_payload_is_in_no_debug_text_and_no_error() {
    const SECRET: &str = "hunter2";
    let db = TestDb::new().await;
    let secret = || Text(SECRET.to_owned());
    // When a row violates this constraint, the server's DETAIL message contains the row and therefore the payload.
    db.pool.execute("alter table queue.job add constraint few_attempts check (max_attempts < 7)").await.unwrap();
    let builder = secret().enqueue(&db.pool).max_attempts(6);
    let mut texts = vec![format!("{builder:?}")];
    let handle = builder.await.unwrap();
    texts.push(format!("{handle:?}"));
    let mut errors = vec![
        secret().enqueue(&db.pool).max_attempts(7).await.unwrap_err(),
        secret().enqueue(&db.pool).max_attempts(0).await.unwrap_err(),
        secret().enqueue(&db.pool).queue("no name").await.unwrap_err(),
        secret().enqueue(&db.pool).store(Store::new("elsewhere").unwrap()).await.unwrap_err(),
        Text(format!("{SECRET}\0")).enqueue(&db.pool).await.unwrap_err(),
        Text(SECRET.repeat(100_000)).enqueue(&db.pool).await.unwrap_err(),
        raw(&json!([SECRET]).to_string().replace('2', "\\ud800")).enqueue(&db.pool).await.unwrap_err(),
    ];
    assert!(matches!(errors[0], Error::Database(_)) && errors[0].to_string().contains("few_attempts"), "{}", errors[0]);
    texts.extend(errors.iter().map(|error| format!("{error} {error:?} {error:#?}")));
    texts.extend(errors.drain(..).map(|error| {
        let outer = queue_worker::Error::from(error);
        format!("{outer} {outer:?}") + &format!("{:?}", anyhow::Error::from(outer))
    }));
    for text in texts {
        assert!(!text.contains("hunter"), "{text}");
    }
    db.finish().await;
}

/// A time must have the same meaning in every session, regardless of the time zone and the date style.
#[tokio::test]
async fn a_time_in_sql_has_the_form_of_rfc_3339_with_an_offset_or_is_refused() {
    let db = TestDb::new().await;
    let mut on = db.pool.acquire().await.unwrap();
    sqlx::raw_sql("set time zone 'America/New_York'; set datestyle = 'SQL, DMY'").execute(&mut *on).await.unwrap();
    for option in ["run_at", "expires_at"] {
        let call = format!("select queue.enqueue('do', '{{}}', jsonb_build_object('{option}', $1))");
        for (time, second) in [
            ("2099-01-02T09:00:00Z", "2099-01-02 09:00:00"),
            ("2099-01-02t09:00:00z", "2099-01-02 09:00:00"),
            ("2099-01-02 09:00:00.25+01:00", "2099-01-02 08:00:00.25"),
            ("2099-01-02T09:00:00-05:30", "2099-01-02 14:30:00"),
        ] {
            let id: JobId = sqlx::query_scalar(AssertSqlSafe(call.clone())).bind(time).fetch_one(&mut *on).await.unwrap();
            let meant = "select coalesce((select run_at from queue.scheduled where id = $1), (system ->> 'expires_at')::timestamptz)
              = ($2 || '+00')::timestamptz from queue.job where id = $1";
            let meant: bool = sqlx::query_scalar(meant).bind(id).bind(second).fetch_one(&mut *on).await.unwrap();
            assert!(meant, "{option} {time}");
        }
        for time in [
            "2099-01-02 09:00",
            "2099-01-02T09:00:00",
            "2099-01-02",
            "2099-01-02Z",
            "2099-01-02T09:00Z",
            "2099-01-02T09:00:00+01",
            "2099-01-02T09:00:00+0100",
            "2099-01-02T09:00:00 Europe/Berlin",
            "20990102T090000Z",
            "03/04/2099",
            "Jan 2 2099 09:00:00+01:00",
            "2099-13-02T09:00:00Z",
            "tomorrow",
            "now",
            "epoch",
            "",
        ] {
            let refused = sqlx::query(AssertSqlSafe(call.clone())).bind(time).execute(&mut *on).await;
            let refused = refused.err().unwrap_or_else(|| panic!("{option} {time} was taken"));
            let refused = refused.as_database_error().unwrap();
            assert_eq!(refused.code().as_deref(), Some("22023"), "{option} {time}: {refused}");
            assert!(refused.message().contains("in the form 2027-01-31T09:00:00Z"), "{option} {time}: {refused}");
        }
    }
    drop(on);
    db.finish().await;
}
