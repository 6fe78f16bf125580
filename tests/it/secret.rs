//! Tests a role that has only the privilege to connect. Nothing that the role can compute, guess or read lets it stall a producer, occupy
//! capacity or wake a worker.

use std::{borrow::Cow, str::FromStr as _, time::Duration};

use queue_core::{Batch, Error, Job as _, JobState, Queue, Store, migrate};
use queue_worker::{Config, Worker};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tests::{Act, Do, TestDb, eventually, server::TestServer, within};
use tokio::task::JoinSet;

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Role with only the privileges of PUBLIC.
struct Outsider {
    role: String,
    url: String,
}

impl Outsider {
    async fn new(db: &TestDb) -> Self {
        let role = format!("outsider_{}", uuid::Uuid::new_v4().simple());
        db.pool.execute(AssertSqlSafe(format!("create role {role}"))).await.unwrap();
        Self { role, url: db.url.clone() }
    }

    async fn connect(&self) -> PgConnection {
        let mut on = PgConnection::connect(&self.url).await.unwrap();
        on.execute(AssertSqlSafe(format!("set session authorization {}", self.role))).await.unwrap();
        on
    }

    async fn leave(self, db: TestDb) {
        db.pool.execute(AssertSqlSafe(format!("drop owned by {0}; drop role {0}", self.role))).await.unwrap();
        db.finish().await;
    }
}

/// Query that returns the number of each shared advisory lock that other sessions hold in this database, and the next four numbers.
const SEEN: &str = "select l.classid::bigint, (l.objid::bigint + n) & 4294967295
  from pg_locks l cross join generate_series(0, 4) n
  where l.locktype = 'advisory' and l.pid <> pg_backend_pid() and l.granted and l.mode = 'ShareLock'
    and l.database = (select oid from pg_database where datname = current_database())";

/// Statements that take the advisory locks whose numbers derive from the product's names.
const NAMED: &str = "select count(pg_advisory_lock(hashtext(p), n))
  from unnest('{queue.key,queue.lanes,keys,lanes,counts}'::text[]) p cross join generate_series(0, 200) n;
  select count(pg_advisory_lock(hashtext('queue.capacity/bounded'), n)) from generate_series(0, 200) n;
  select count(pg_advisory_lock(hashtextextended(p, 0))) from unnest('{queue.days,queue.migrate,days,migrate}'::text[]) p";

#[tokio::test]
async fn locks_that_every_role_can_take_stall_no_producer_no_day_and_no_migration() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).set_capacity("bounded", Some(20)).await.unwrap();
    let outsider = Outsider::new(&db).await;
    let mut named = outsider.connect().await;
    named.execute(NAMED).await.unwrap();
    // The outsider requests every lock that the producer's open transaction holds, and keeps each lock once it is granted.
    let mut open = db.pool.begin().await.unwrap();
    open.execute("set local lock_timeout = '2s'").await.unwrap();
    for key in 0..20 {
        quick().enqueue(&mut open).key(key.to_string()).await.unwrap();
    }
    quick().enqueue(&mut open).queue("new").await.unwrap();
    quick().enqueue(&mut open).queue("bounded").await.unwrap();
    let mut taking = JoinSet::new();
    let mut watching = outsider.connect().await;
    let seen: Vec<(i64, i64)> = sqlx::query_as(SEEN).fetch_all(&mut watching).await.unwrap();
    for (class, number) in seen {
        let mut on = outsider.connect().await;
        taking.spawn(async move {
            let take = "select pg_advisory_lock(($1 - ($1 >> 31 << 32))::int, ($2 - ($2 >> 31 << 32))::int)::text";
            sqlx::query(take).bind(class).bind(number).execute(&mut on).await.unwrap();
            on
        });
    }
    let has = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'
      and database = (select oid from pg_database where datname = current_database()) and pid <> $1";
    let named_by: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut named).await.unwrap();
    let takes = i64::try_from(taking.len()).unwrap();
    let all = async || sqlx::query_scalar::<_, i64>(has).bind(named_by).fetch_one(&db.pool).await.unwrap() == takes;
    eventually("the outsider has them or waits for them", all).await;
    // Another session takes the lock that the producer needs next. Only the owner of the store can compute this lock's number, which
    // depends on the store's secret.
    let next = "select count(pg_advisory_lock(queue.capacity_mark(s.marks, 'bounded', $1::bigint & 4294967295, n), n)) from queue.secret s, generate_series(2, 3) n";
    let number: String = sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(&mut *open).await.unwrap();
    let mut knows = PgConnection::connect(&db.url).await.unwrap();
    sqlx::query(next).bind(number.parse::<i64>().unwrap()).execute(&mut knows).await.unwrap();
    for _ in 0..4 {
        quick().enqueue(&mut open).queue("bounded").await.unwrap();
    }
    open.commit().await.unwrap();
    let held = taking.join_all().await;

    let mut on = PgConnection::connect(&db.url).await.unwrap();
    on.execute("set lock_timeout = '2s'").await.unwrap();
    for key in 0..20 {
        quick().enqueue(&mut on).key(key.to_string()).await.unwrap();
    }
    let mut batch = Batch::new();
    for key in 0..20 {
        batch.add(quick()).unwrap().key(key.to_string());
    }
    batch.enqueue(&mut on).await.unwrap();
    quick().enqueue(&mut on).queue("newer").await.unwrap();
    for _ in 0..15 {
        quick().enqueue(&mut on).queue("bounded").await.unwrap();
    }
    assert!(matches!(quick().enqueue(&mut on).queue("bounded").await.unwrap_err(), Error::AtCapacity { capacity: 20, .. }));
    Queue::on(&mut on).set_capacity("new", Some(1)).await.unwrap();
    let made: i32 = sqlx::query_scalar("select queue.add_days(9)").fetch_one(&mut on).await.unwrap();
    assert!(made > 0, "no day was made");
    let fresh = Store::new("fresh").unwrap();
    assert_eq!(migrate(&mut on, fresh).await.unwrap().len(), usize::try_from(migrate::LATEST).unwrap());
    assert_eq!(migrate(&mut on, Store::default()).await.unwrap(), [] as [i32; 0]);
    for on in held.into_iter().chain([named, watching, knows]) {
        on.close().await.unwrap();
    }
    outsider.leave(db).await;
}

/// Other roles cannot take the advisory locks with which producers announce their uncommitted jobs.
#[tokio::test]
async fn no_other_role_can_announce_jobs_that_it_does_not_have() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).set_capacity("bounded", Some(20)).await.unwrap();
    let mut open = db.pool.begin().await.unwrap();
    quick().enqueue(&mut open).queue("bounded").await.unwrap();
    quick().enqueue(&mut open).queue("bounded").await.unwrap();
    let outsider = Outsider::new(&db).await;
    let mut lies = outsider.connect().await;
    let mut lies = lies.begin().await.unwrap();
    let seen: Vec<(i64, i64)> = sqlx::query_as(SEEN).fetch_all(&mut *lies).await.unwrap();
    assert!(!seen.is_empty());
    let own: String = sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(&mut *lies).await.unwrap();
    // These lock numbers are computed without the secret.
    let guesses =
        "select (queue.hash(concat_ws('/', s, 'bounded', $1::text, '1000')) >> 32) & 4294967295 from unnest(array[null, '', 'marks']) s";
    let guessed: Vec<i64> = sqlx::query_scalar(guesses).bind(own).fetch_all(&db.pool).await.unwrap();
    let lied =
        seen.into_iter().flat_map(|(class, number)| [(class, number), (class, 1000)]).chain(guessed.into_iter().map(|class| (class, 1000)));
    for (class, number) in lied {
        let say = "select pg_advisory_xact_lock_shared(($1 - ($1 >> 31 << 32))::int, ($2 - ($2 >> 31 << 32))::int)::text";
        sqlx::query(say).bind(class).bind(number).execute(&mut *lies).await.unwrap();
    }
    sqlx::query("select pg_advisory_xact_lock_shared(hashtext('queue.capacity/bounded'), 1000)::text").execute(&mut *lies).await.unwrap();
    for _ in 0..18 {
        quick().enqueue(&db.pool).queue("bounded").await.unwrap();
    }
    assert!(matches!(quick().enqueue(&db.pool).queue("bounded").await.unwrap_err(), Error::AtCapacity { .. }), "what is open counts");
    open.rollback().await.unwrap();
    lies.rollback().await.unwrap();
    outsider.leave(db).await;
}

/// Sends a marker notification. Returns all notifications that arrived before the marker.
async fn received(db: &TestDb, listener: &mut PgListener) -> Vec<String> {
    db.pool.execute("select queue.notify('wake', 'that was all')").await.unwrap();
    let mut payloads = Vec::new();
    loop {
        match listener.recv().await.unwrap().payload() {
            "that was all" => return payloads,
            other => payloads.push(other.to_owned()),
        }
    }
}

fn sleeper(db: &TestDb) -> Worker {
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    Worker::new(db.pool.clone()).config(config).register::<Do>()
}

async fn asleep(pool: &PgPool) {
    let listens = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker listen'
      and state = 'idle' and exists (select from queue.idle)";
    let listens = async || sqlx::query_scalar::<_, i64>(listens).fetch_one(pool).await.unwrap() == 1;
    eventually("it sleeps and listens", listens).await;
}

#[tokio::test]
async fn guessed_channels_wake_no_worker() {
    let db = TestDb::new().await;
    let outsider = Outsider::new(&db).await;
    db.run_while(sleeper(&db), async {
        asleep(&db.pool).await;
        let job = quick().enqueue(&db.pool).await.unwrap().id();
        db.until(job, JobState::Completed).await;
        asleep(&db.pool).await;
        // Creates a job without a notification.
        let silent = "with lane as (select lane from queue.lane), job as (
            insert into queue.job (id, lane, max_attempts, payload) select queue.next_id(), lane, 3, '{\"act\":{\"Ok\":\"\"}}' from lane
            returning id, lane
          ) insert into queue.ready (lane, seq, id) select lane, id, id from job returning id";
        let silent = sqlx::query_scalar(silent).fetch_one(&db.pool).await.unwrap();
        let (mut listener, mut on) = (db.listen("wake").await, outsider.connect().await);
        for _ in 0..10 {
            for channel in ["queue.wake", "queue.over", "queue", "wake", "over", "wake_", "over_", "wake_default"] {
                for payload in ["default", "#", "!control", ""] {
                    sqlx::query("select pg_notify($1, $2)::text").bind(channel).bind(payload).execute(&mut on).await.unwrap();
                }
            }
            assert_eq!(received(&db, &mut listener).await, [] as [String; 0]);
        }
        on.close().await.unwrap();
        let job = quick().enqueue(&db.pool).await.unwrap().id();
        db.until(job, JobState::Completed).await;
        db.until(silent, JobState::Completed).await;
    })
    .await;
    outsider.leave(db).await;
}

/// A worker is sleeping, a process is waiting for a job, and a producer holds the advisory lock that announces its uncommitted job.
#[tokio::test]
#[ignore = "deep"]
async fn a_role_that_may_only_connect_finds_the_secret_nowhere() {
    let db = TestDb::new().await;
    let outsider = Outsider::new(&db).await;
    Queue::new(&db.pool).set_capacity("default", Some(100)).await.unwrap();
    db.pool.execute("analyze queue.secret").await.unwrap();
    db.run_while(sleeper(&db), async {
        asleep(&db.pool).await;
        let mut open = db.pool.begin().await.unwrap();
        let job = quick().enqueue(&mut open).await.unwrap();
        let scheduled = quick().enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap();
        let waits = tokio::spawn({
            let pool = db.pool.clone();
            async move { scheduled.wait(&Queue::new(&pool)).timeout(Duration::from_mins(1)).await }
        });
        let secrets: Vec<String> =
            sqlx::query_scalar("select unnest(array[split_part(wake, '_', 2), split_part(over, '_', 2), marks]) from queue.secret")
                .fetch_all(&db.pool)
                .await
                .unwrap();
        let mut on = outsider.connect().await;
        let readable = "select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
          where c.relkind in ('r', 'v', 'm', 'p') and n.nspname !~ '^pg_(toast|temp)'
            and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')";
        let readable: Vec<String> = sqlx::query_scalar(readable).fetch_all(&mut on).await.unwrap();
        assert!(readable.len() > 100 && readable.iter().any(|name| name == "pg_stat_activity"), "{readable:?}");
        let mut read = 0;
        for relation in &readable {
            let query = format!("select count(*) from {relation} r where r::text ~ any ($1)");
            // A few views cannot be queried. These views are skipped.
            if let Ok(found) = sqlx::query_scalar::<_, i64>(AssertSqlSafe(query)).bind(&secrets).fetch_one(&mut on).await {
                assert_eq!(found, 0, "{relation} shows a secret");
                read += 1;
            }
        }
        assert!(read > 100, "{read} were read");
        let refused = async |on: &mut PgConnection, statement: &'static str| {
            let error = on.execute(statement).await.unwrap_err();
            let code = error.as_database_error().and_then(|error| error.code().map(Cow::into_owned));
            assert_eq!(code.as_deref(), Some("42501"), "{statement}: {error}");
        };
        // The statements are rejected both with and without the USAGE privilege on the schema.
        for may_see in [false, true] {
            if may_see {
                db.pool.execute(AssertSqlSafe(format!("grant usage on schema queue to {}", outsider.role))).await.unwrap();
            }
            refused(&mut on, "select queue.channel('wake')").await;
            refused(&mut on, "select queue.notify('wake', 'default')").await;
            refused(&mut on, "select * from queue.secret").await;
            refused(&mut on, "select from queue.stripe for share").await;
            refused(&mut on, "select queue.lock_stripe('keys', 1)").await;
        }
        on.close().await.unwrap();
        open.commit().await.unwrap();
        db.until(job.id(), JobState::Completed).await;
        waits.abort();
    })
    .await;
    outsider.leave(db).await;
}

/// A role that may read the jobs but not the channel names gets no notifications and therefore polls.
#[tokio::test]
async fn a_role_without_the_channel_still_finds_the_outcome_of_its_job() {
    let db = TestDb::new().await;
    let reader = Outsider::new(&db).await;
    let rights =
        "grant usage on schema queue to {0}; grant select on all tables in schema queue to {0}; revoke all on queue.secret from {0};
        grant execute on function queue.job_states to {0}";
    db.pool.execute(sqlx::raw_sql(AssertSqlSafe(rights.replace("{0}", &reader.role)))).await.unwrap();
    let options = PgConnectOptions::from_str(&db.url).unwrap().options([("role", &reader.role)]);
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let queue = Queue::new(&pool);
    let job = quick().enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker(), async { job.wait(&queue).timeout(Duration::from_secs(30)).await }).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.waiter").await, 0, "no notification is requested");
    drop(queue);
    pool.close().await;
    reader.leave(db).await;
}

#[tokio::test]
async fn stores_have_secrets_of_their_own() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for schema in ["one", "Other.two"] {
        migrate(&mut on, Store::new(schema).unwrap()).await.unwrap();
    }
    let secrets = "select count(distinct s) from (
        select wake, over, marks from queue.secret union all select wake, over, marks from one.secret
        union all select wake, over, marks from \"Other.two\".secret
      ) r cross join unnest(array[wake, over, marks]) s where length(s) >= 32";
    assert_eq!(db.count(secrets).await, 9);
    assert_eq!(db.count("select count(*) from \"Other.two\".stripe").await, 3 * 1024 + 1);
    // A missing row must be reported as an error, not treated as a locked row.
    on.execute("delete from one.stripe where stripe = 7").await.unwrap();
    assert!(on.execute("select one.lock_stripe('keys', 7)").await.unwrap_err().to_string().contains("unknown stripe"));
    for wrong in [
        "insert into queue.secret default values",
        "insert into queue.secret (one) values (false)",
        "insert into queue.stripe values ('keys', 7)",
    ] {
        on.execute(wrong).await.unwrap_err();
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_renamed_channel_is_listened_to_eventually() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        asleep(&db.pool).await;
        db.pool.execute("update queue.secret set wake = default").await.unwrap();
        let first = quick().enqueue(&db.pool).await.unwrap().id();
        within(Duration::from_secs(40), "it listens again and polls", async || db.state(first).await == Some(JobState::Completed)).await;
        asleep(&db.pool).await;
        let second = quick().enqueue(&db.pool).await.unwrap().id();
        db.until(second, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_restored_store_has_its_locks_and_channels() {
    let (from, to) = (TestServer::start().await.unwrap(), TestServer::start().await.unwrap());
    let database = from.database("dumped").await.unwrap();
    quick().enqueue(&database.pool).key("a").await.unwrap();
    to.restore(&from, "dumped").await.unwrap();
    from.kill().unwrap();
    let pool = PgPool::connect(&to.url("dumped")).await.unwrap();
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    let running = tokio::spawn(Worker::new(pool.clone()).config(config).register::<Do>().run(std::future::pending()));
    let completed = async |jobs: i64| {
        let completed = "select count(*) from queue.jobs where state = 'completed'";
        eventually("it is completed", async || sqlx::query_scalar::<_, i64>(completed).fetch_one(&pool).await.unwrap() == jobs).await;
    };
    completed(1).await;
    asleep(&pool).await;
    quick().enqueue(&pool).key("a").queue("new").await.unwrap();
    completed(2).await;
    running.abort();
}
