//! Tests how jobs with a fair key enter the fair queue, and how such a job is shown.

use std::time::Duration;

use queue_core::{
    Batch, Context, Error, Handler, Job as _, JobId, JobRef, JobResult, JobState, JobType as _, Queue, job, options::Durability, schedule,
};
use serde::{Deserialize, Serialize};
use tests::{Act, Do, Sql as _, TestDb, fair_queues::move_to_fair_lanes};

use super::key_of;

/// Fair job of a tenant.
#[job(name = "fair_rendered", fair = self.tenant, send_only, backoff = fixed("1ms"), max_attempts = 3)]
#[derive(Serialize, Deserialize)]
struct Rendered {
    tenant: u32,
}

impl Handler for Rendered {
    async fn run(self, cx: &Context) -> JobResult {
        if self.tenant == 13 && cx.attempt() < 3 { Err("as told".into()) } else { Ok(()) }
    }
}

fn done() -> Do {
    Do::ok()
}

#[tokio::test]
async fn every_way_to_enqueue_leads_into_the_fair_queue_of_the_key() {
    let (db, mut on) = TestDb::with_connection().await;
    assert_eq!(Rendered { tenant: 7 }.fair_key().as_deref(), Some("7"));
    let plain = Rendered { tenant: 7 }.enqueue(&db.pool).await.unwrap().id();
    let relaxed = Rendered { tenant: 7 }.enqueue(&db.pool).durability(Durability::Relaxed).await.unwrap().id();
    let mut tx = db.pool.begin().await.unwrap();
    let given = Rendered { tenant: 7 }.enqueue(&mut tx).fair("other").meta("a", 1).priority(7).queue("mail").await.unwrap().id();
    tx.commit().await.unwrap();
    let of_any_type = done().enqueue(&db.pool).fair("7").await.unwrap().id();
    let tried = Rendered { tenant: 7 }.enqueue(&db.pool).unless_at_capacity().await.unwrap().unwrap().id();
    let unique = Rendered { tenant: 7 }.enqueue(&db.pool).unique("u").await.unwrap().id();
    let sql: JobId = on.one("select queue.enqueue('do', '{\"act\":{\"Ok\":\"x\"}}', '{\"fair\":\"7\"}')").await;
    for job in [plain, relaxed, of_any_type, tried, unique, sql] {
        assert_eq!(key_of(&mut on, job, &["7", "other"]).await.as_deref(), Some("7"));
        assert_eq!(db.state(job).await, Some(JobState::Ready));
    }
    assert_eq!(key_of(&mut on, given, &["7", "other"]).await.as_deref(), Some("other"));
    let mut batch = Batch::new();
    batch.add(Rendered { tenant: 7 }).unwrap();
    batch.add(done()).unwrap();
    batch.add(done()).unwrap().fair("8");
    batch.add(Rendered { tenant: 9 }).unwrap().after(Duration::from_hours(1));
    let batched = batch.enqueue(&db.pool).await.unwrap();
    let keys = ["7", "8", "9"];
    assert_eq!(key_of(&mut on, batched[0], &keys).await.as_deref(), Some("7"));
    assert_eq!((key_of(&mut on, batched[1], &keys).await, db.state(batched[1]).await), (None, Some(JobState::Ready)));
    assert_eq!(key_of(&mut on, batched[2], &keys).await.as_deref(), Some("8"));
    assert_eq!(db.state(batched[3]).await, Some(JobState::Scheduled));
    JobRef::from_id(batched[3]).run_now(&db.pool).await.unwrap();
    db.run_until_idle(db.worker().register::<Rendered>().queue("default", 10).queue("mail", 1)).await;
    db.finish().await;
}

#[tokio::test]
async fn a_bulk_enqueue_enters_its_fair_queues_in_the_given_order() {
    let (db, mut on) = TestDb::with_connection().await;
    let jobs = (0..20_000).map(|n| Rendered { tenant: n % 3 });
    let ids = Rendered::enqueue_all(jobs, &db.pool).returning_ids().await.unwrap();
    for tenant in 0..3 {
        let places = "select array_agg(id order by seq) from queue.ready where fair_id = queue.fair_id_of($1)";
        let found: Vec<i64> = sqlx::query_scalar(places).bind(tenant.to_string()).fetch_one(&mut on).await.unwrap();
        let given: Vec<i64> = ids.iter().skip(tenant).step_by(3).map(|job| job.id().0).collect();
        assert!(found == given, "tenant {tenant}");
    }
    assert_eq!(db.count("select count(distinct lane) from queue.ready").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_scheduled_job_of_a_fair_type_and_one_without_a_key_enter_a_fair_queue_too() {
    let (db, mut on) = TestDb::with_connection().await;
    let spec = schedule::Schedule::every(Duration::from_secs(1)).job(&Rendered { tenant: 5 });
    Queue::new(&db.pool).schedule("rendered").create(&spec).await.unwrap();
    on.run("update queue.schedule set next_at = now() - interval '1 s'").await;
    let fire = "select f.job from queue.schedule s, queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], 'enqueue', now() + interval '1 h', null) f";
    let fired: JobId = on.one(fire).await;
    assert_eq!(key_of(&mut on, fired, &["5"]).await.as_deref(), Some("5"));
    let without: JobId = on.one("select queue.enqueue('fair_rendered', '{\"tenant\":6}')").await;
    db.run_while(db.worker().register::<Rendered>(), async {
        for job in [fired, without] {
            db.until(job, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_failed_job_returns_to_its_fair_queue_and_is_retried() {
    let db = TestDb::new().await;
    let job = Rendered { tenant: 13 }.enqueue(&db.pool).await.unwrap().id();
    let snoozed = Do { act: Act::Snooze(1, 3) }.enqueue(&db.pool).fair("13").await.unwrap().id();
    let dead = Do { act: Act::Terminal("x".into()) }.enqueue(&db.pool).fair("13").await.unwrap();
    db.run_while(db.worker().register::<Rendered>(), async {
        db.until(job, JobState::Completed).await;
        db.until(snoozed, JobState::Completed).await;
        db.until(dead.id(), JobState::Dead).await;
    })
    .await;
    assert_eq!(db.count(&format!("select attempts::bigint from queue.done where id = {job}")).await, 3);
    let mut on = db.connect().await;
    dead.requeue(&db.pool).await.unwrap();
    assert_eq!((move_to_fair_lanes(&mut on, 10).await.unwrap(), db.state(dead.id()).await), (1, Some(JobState::Ready)));
    assert_eq!(key_of(&mut on, dead.id(), &["13"]).await.as_deref(), Some("13"));
    db.finish().await;
}

#[tokio::test]
async fn a_job_with_an_ordering_key_takes_its_turn_once_it_is_the_head() {
    let (db, mut on) = TestDb::with_connection().await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(done().enqueue(&db.pool).key("k").fair("7").await.unwrap().id());
    }
    let all = Do::enqueue_all((0..2).map(|_| done()), &db.pool).key("k").fair("7").returning_ids().await.unwrap();
    jobs.extend(all.iter().map(queue_core::JobHandle::id));
    assert_eq!(db.count("select count(*) from queue.blocked").await, 4);
    assert_eq!(db.count("select count(*) from queue.job where fair_id = queue.fair_id_of('7')").await, 5);
    assert_eq!(move_to_fair_lanes(&mut on, 10).await.unwrap(), 1, "the head");
    assert_eq!(key_of(&mut on, jobs[0], &["7"]).await.as_deref(), Some("7"));
    db.run_until_idle(db.worker()).await;
    let order: Vec<JobId> = on.all("select job from effect order by at").await;
    assert_eq!(order, jobs);
    assert_eq!(db.count("select count(*) from queue.active_key").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_fair_key_has_any_length_but_no_nul_and_an_invalid_one_is_refused() {
    let (db, mut on) = TestDb::with_connection().await;
    let long = "k".repeat(1 << 20);
    let job = done().enqueue(&db.pool).fair(&long).await.unwrap().id();
    assert_eq!(key_of(&mut on, job, &[&long]).await, Some(long));
    let empty = done().enqueue(&db.pool).fair("").await.unwrap().id();
    assert_eq!(key_of(&mut on, empty, &[""]).await.as_deref(), Some(""));
    let refused = done().enqueue(&db.pool).fair("a\0b").await.unwrap_err();
    assert!(matches!(refused, Error::OutOfRange { what: "the fair key", .. }), "{refused}");
    let mut enqueue = async |options: &str, payload: &str, job_type: &str| {
        let enqueue = format!("select queue.enqueue({job_type}, {payload}, '{options}')");
        sqlx::query(sqlx::AssertSqlSafe(enqueue)).execute(&mut on).await.unwrap_err().to_string()
    };
    let secret = enqueue("{\"fair\": {\"who\": \"ada\"}}", "'{}'", "'do'").await;
    assert!(secret.contains("the option fair must be a text") && !secret.contains("ada"), "{secret}");
    assert!(enqueue("{\"fair\": \"7\"}", "null", "'do'").await.contains("payload"));
    let large = "jsonb_build_object('a', repeat('x', 300000))";
    assert!(enqueue("{\"fair\": \"7\"}", large, "'do'").await.contains("the limit is"));
    assert!(enqueue("{\"fair\": \"7\"}", "'{}'", "null").await.contains("job type"));
    db.finish().await;
}

#[tokio::test]
async fn a_type_that_becomes_fair_or_plain_leaves_no_job_behind() {
    let (db, mut on) = TestDb::with_connection().await;
    let mut ids = Vec::new();
    for n in 0..20 {
        let key = (n % 2 == 0).then(|| format!("{{\"fair\": \"{n}\"}}"));
        for job_type in ["fair_rendered", "do"] {
            let payload = if job_type == "do" { "{\"act\":{\"Ok\":\"x\"}}" } else { "{\"tenant\":1}" };
            let enqueue = "select queue.enqueue($1, $2::jsonb, coalesce($3::jsonb, '{}'))";
            let id: JobId = sqlx::query_scalar(enqueue).bind(job_type).bind(payload).bind(&key).fetch_one(&mut on).await.unwrap();
            ids.push(id);
        }
    }
    db.run_while(db.worker().register::<Rendered>(), async {
        db.until_count("select count(*) from queue.jobs where state = 'completed'", 40).await;
    })
    .await;
    assert_eq!(ids.len(), 40);
    db.finish().await;
}
