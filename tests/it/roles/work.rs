//! Tests the regular work of each role. Each user has only the privileges of its role.

use std::{process::Command, time::Duration};

use queue_core::{
    Batch, EnqueueOutcome, Error, Job as _, JobId, JobRef, JobState, Queue, Roles, Store, migrate,
    options::Durability,
    runner::{Migration, migrate_with},
};
use queue_worker::Worker;
use tests::{Act, Do, WorkerProcess, eventually, within};

use super::RoledStore;
use crate::health::{free_address, get};

pub(super) const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");
const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

pub(super) fn ok() -> Do {
    Do { act: Act::Ok("done".into()) }
}

async fn state(store: &RoledStore, id: JobId) -> Option<String> {
    sqlx::query_scalar("select state from queue.jobs where id = $1").bind(id).fetch_optional(&store.db.pool).await.unwrap()
}

pub(super) async fn until(store: &RoledStore, id: JobId, expected: &str) {
    eventually(&format!("job {id} is {expected}"), async || state(store, id).await.as_deref() == Some(expected)).await;
}

/// Runs the command line as `user`. Returns the exit code and the output.
pub(super) fn cli(store: &RoledStore, user: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(CLI).args(arguments).env("DATABASE_URL", store.url(user)).env("NO_COLOR", "1").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_enqueues_in_every_way_and_waits() {
    let store = RoledStore::new().await;
    let web = store.pool("web");
    let worker = WorkerProcess::start_logged(WORKER, &store.url("runner"), &[]);

    let queue = Queue::new(&web);
    let handle = ok().enqueue(&web).await.unwrap();
    assert_eq!(queue.job(handle.id()).wait::<Do>().await.unwrap(), "done");
    assert_eq!(handle.status(&web).await.unwrap().state, JobState::Completed);
    let handle = ok().enqueue(&web).durability(Durability::Relaxed).await.unwrap();
    assert_eq!(handle.wait(&queue).await.unwrap(), "done");

    let mut tx = web.begin().await.unwrap();
    let rolled_back = ok().enqueue(&mut tx).await.unwrap().id();
    tx.rollback().await.unwrap();
    assert_eq!(state(&store, rolled_back).await, None);
    for outcome in [EnqueueOutcome::New, EnqueueOutcome::Kept] {
        let unique = ok().enqueue(&web).unique("a").after(Duration::from_hours(1)).await.unwrap();
        assert_eq!(unique.outcome(), outcome);
    }
    let keyed = ok().enqueue(&web).key("k").meta("tenant", "acme").await.unwrap();
    assert_eq!(keyed.wait(&queue).await.unwrap(), "done");
    let far = ok().enqueue(&web).after(Duration::from_hours(1)).await.unwrap();
    assert_eq!(state(&store, far.id()).await.as_deref(), Some("scheduled"));
    Queue::new(&store.db.pool).set_capacity("small", Some(0)).await.unwrap();
    assert!(ok().enqueue(&web).queue("small").unless_at_capacity().await.unwrap().is_none());
    let refused = ok().enqueue(&web).queue("small").await.unwrap_err();
    assert!(matches!(refused, Error::AtCapacity { capacity: 0, .. }), "{refused}");
    let refused = Do::enqueue_all((0..10).map(|_| ok()), &web).queue("small").await.unwrap_err();
    assert!(matches!(refused, Error::AtCapacity { capacity: 0, .. }), "{refused}");

    let later = || Do::enqueue_all((0..9000).map(|_| ok()), &web).after(Duration::from_hours(1));
    let many = later().returning_ids().await.unwrap();
    assert_eq!(many.len(), 9000);
    assert!(many.windows(2).all(|two| two[0].id() < two[1].id()), "in their order");
    let mut batch = Batch::new();
    for key in ["b", "a", "b"] {
        batch.add(ok()).unwrap().key(key);
    }
    batch.add(ok()).unwrap().priority(7).after(Duration::from_hours(1));
    let batch = batch.enqueue(&web).await.unwrap();
    assert_eq!(store.db.count("select count(*) from queue.scheduled").await.unwrap(), 9003);
    for id in &batch[..3] {
        until(&store, *id, "completed").await;
    }
    let later: (String, i16) =
        sqlx::query_as("select state, priority from queue.jobs where id = $1").bind(batch[3]).fetch_one(&store.db.pool).await.unwrap();
    assert_eq!(later, ("scheduled".to_owned(), 7));

    store.tries("web", "select queue.enqueue('do', '{\"act\": {\"Ok\": \"x\"}}')").await.unwrap();
    let refused = store.tries("web", "select queue.enqueue('do@2', '{}')").await.unwrap_err();
    assert!(refused.contains("is set with the option version"), "{refused}");
    store.tries("web", "select queue.enqueue('do', '{\"act\": {\"Ok\": \"x\"}}', '{\"queue\": \"mail\"}')").await.unwrap();
    let id: JobId = sqlx::query_scalar("select queue.enqueue('do', '{\"act\": {\"Ok\": \"x\"}}')").fetch_one(&web).await.unwrap();
    let end_state: Option<String> = sqlx::query_scalar("select w.state from queue.wait($1) w").bind(id).fetch_optional(&web).await.unwrap();
    assert_eq!(end_state.as_deref(), Some("completed"));
    drop(worker);
    store.server.stop().unwrap();
}

/// The worker and its handlers run as a role that may not create anything.
#[tokio::test]
#[ignore = "deep"]
async fn a_worker_starts_works_recovers_and_runs_housekeeping_without_the_privilege_to_create() {
    let store = RoledStore::new().await;
    let (own, none) = (Store::default(), Vec::<i32>::new());
    let runner = store.pool("runner");
    assert_eq!(migrate(&mut runner.acquire().await.unwrap(), own).await.unwrap(), none, "nothing to do takes no right to do it");
    let (code, output) = cli(&store, "runner", &["migrate"]);
    assert!(code == Some(0) && output.contains("is up to date"), "{output}");

    let day = |days: i32| format!("job_' || queue.day_name((clock_timestamp() at time zone 'UTC')::date + {days})");
    let exists = |days: i32| format!("select (to_regclass('queue.{}) is not null)::int::bigint", day(days));
    let make_past = "do $$ declare day date := (now() at time zone 'UTC')::date - 9; parent text; begin
       foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
         execute format('create table queue.%I partition of queue.%I for values from (%s) to (%s)', parent || '_' || queue.day_name(day), parent,
           queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
         execute format('alter table queue.%I owner to queue_owner', parent || '_' || queue.day_name(day));
       end loop; end $$";
    store.run(make_past).await;
    for parent in ["job", "done", "done_many", "failure", "step"] {
        store.run(&format!("do $$ begin execute 'drop table queue.{}; end $$", day(7).replacen("job", parent, 1))).await;
    }
    assert_eq!((store.db.count(&exists(7)).await.unwrap(), store.db.count(&exists(-9)).await.unwrap()), (0, 1));

    let web = store.pool("web");
    let first = |act: Act, later: Act| Do { act: Act::First(Box::new(act), Box::new(later)) };
    let stuck = first(Act::Hang, Act::Ok("again".into())).enqueue(&web).await.unwrap();
    let killed = WorkerProcess::start(WORKER, &store.url("runner"), &[("TTL_MS", "1000")]);
    eventually("it runs", async || store.db.count("select count(*) from effect").await.unwrap() == 1).await;
    killed.kill();

    let worker =
        WorkerProcess::start_with(WORKER, &store.url("runner"), &[], &[("TTL_MS", "1000"), ("QUEUE_LOG", "warn"), ("NO_COLOR", "1")]);
    let began = std::time::Instant::now();
    let mut expected = vec![(stuck.id(), "completed")];
    for (act, end) in [
        (Act::FailUntil(2), "completed"),
        (Act::Terminal("no use".into()), "dead"),
        (Act::Snooze(10, 2), "completed"),
        (Act::Panic, "dead"),
        (Act::Nul, "completed"),
    ] {
        expected.push((Do { act }.enqueue(&web).await.unwrap().id(), end));
    }
    for key in ["a", "b", "a", "a"] {
        expected.push((ok().enqueue(&web).key(key).await.unwrap().id(), "completed"));
    }
    let soon = ok().enqueue(&web).after(Duration::from_millis(200)).await.unwrap();
    let own = tests::Own { how: "child".into() }.enqueue(&web).await.unwrap();
    let within = tests::Within { how: "ok".into() }.enqueue(&web).await.unwrap();
    expected.extend([soon.id(), own.id(), within.id()].map(|id| (id, "completed")));
    let hanging = Do { act: Act::Hang }.enqueue(&web).await.unwrap();
    until(&store, hanging.id(), "running").await;
    hanging.job_ref().cancel(&store.pool("ops")).await.unwrap();
    expected.push((hanging.id(), "cancelled"));
    for (id, end) in expected {
        until(&store, id, end).await;
    }
    eventually("days are made", async || store.db.count(&exists(7)).await.unwrap() == 1).await;
    // Another session may hold a lock that conflicts with the drop, so the test retries the drop as a worker does.
    eventually("days are dropped", async || {
        let _ = sqlx::query("select queue.worker_drop_day('7 days')").execute(&runner).await;
        store.db.count(&exists(-9)).await.unwrap() == 0
    })
    .await;
    let denied: Vec<String> = worker.log_since(began).into_iter().filter(|line| line.contains("permission")).collect();
    assert!(denied.is_empty(), "{denied:?}");
    store.server.stop().unwrap();
}

/// Every periodic task has rows to process. The worker has only the privileges of its role.
#[tokio::test]
#[ignore = "deep"]
async fn a_worker_prunes_with_its_own_privileges() {
    let store = RoledStore::new().await;
    // After all day partitions are dropped, new rows go into the default partitions.
    let no_days = "do $$ declare day text; begin
        for day in select i.inhrelid::regclass::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
          where c.relnamespace = 'queue'::regnamespace and c.relkind = 'r' and c.relname ~ '[0-9]$' loop
          execute 'drop table ' || day;
        end loop; end $$";
    store.run(no_days).await;
    let (runner, web) = (store.pool("runner"), store.pool("web"));
    let dead = Do { act: Act::Terminal("no use".into()) }.enqueue(&web).key("k").await.unwrap().id();
    let done = Do { act: Act::FailUntil(2) }.enqueue(&web).unique("u").await.unwrap().id();
    let worker = || Worker::new(runner.clone()).register::<Do>().lease_ttl(Duration::from_secs(5));
    let run = async |worker: Worker, until: &str, sql: &str| {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(worker.run(async { drop(stopped.await) }));
        eventually(until, async || store.db.count(sql).await.unwrap() == 0).await;
        let _ = stop.send(());
        running.await.unwrap().unwrap();
    };
    run(worker(), "both have finished", "select count(*) from queue.jobs where state not in ('completed', 'dead')").await;
    store
        .run("update queue.dead set died_at = now() - interval '3 days'; update queue.done set finished_at = now() - interval '30 days'")
        .await;
    store.run("insert into queue.waiter values (gen_random_uuid(), now() - interval '1 hour')").await;
    store.run("insert into queue.worker values (gen_random_uuid(), now() - interval '1 day', now(), 'x', 'x', 1, 'x', '{}')").await;
    let left = "select (select count(*) from queue.job) + (select count(*) from queue.failure) + (select count(*) from queue.unique_key)
        + (select count(*) from queue.active_key) + (select count(*) from queue.waiter) + (select count(*) from queue.worker where name = 'x')";
    assert!(store.db.count(left).await.unwrap() >= 7);
    run(worker().dead_retention(Duration::from_hours(24)), "all is pruned", left).await;
    assert_eq!((state(&store, dead).await, state(&store, done).await), (None, None));
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn an_operator_changes_and_a_reader_reads_without_payloads() {
    let store = RoledStore::new().await;
    let web = store.pool("web");
    let secret = || Do { act: Act::Terminal("payload-secret".into()) };
    let dead = Do { act: Act::Terminal("said in an error".into()) }.enqueue(&web).meta("tenant", "acme").await.unwrap().id();
    let done = Do { act: Act::Ok("output-secret".into()) }.enqueue(&web).await.unwrap();
    let worker = WorkerProcess::start_logged(WORKER, &store.url("runner"), &[]);
    until(&store, dead, "dead").await;
    until(&store, done.id(), "completed").await;
    drop(worker);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(secret().enqueue(&web).queue("mail").await.unwrap().id().to_string());
    }
    let (dead, done) = (dead.to_string(), done.id().to_string());

    for user in ["viewer", "ops"] {
        for (arguments, expected) in [
            (&["stats"][..], "mail"),
            (&["list", "--state", "dead"], "said in an error"),
            (&["list", "--meta", "tenant=acme"], &*dead),
            (&["show", &*dead], "said in an error"),
            (&["show", &*done], "completed"),
            (&["show", &*waiting[0]], "ready"),
            (&["export"], &*done),
            (&["capacity"], "no"),
            (&["pauses"], "nothing is paused"),
            (&["migrate", "status"], "doors"),
            (&["migrate"], "up to date"),
        ] {
            let (code, output) = cli(&store, user, arguments);
            assert!(code == Some(0) && output.contains(expected) && !output.contains("secret"), "{user} {arguments:?}: {output}");
        }
        let shown: Vec<(String, Option<String>)> = sqlx::query_as("select state, error from queue.jobs where queue = 'mail' order by id")
            .fetch_all(&store.pool(user))
            .await
            .unwrap();
        assert_eq!(shown.len(), 3);
    }
    for arguments in [&["show", &*done, "--payload"][..], &["export", "--payload"]] {
        let (code, output) = cli(&store, "ops", arguments);
        assert!(code == Some(0) && output.contains("secret"), "{arguments:?}: {output}");
    }
    let (code, output) = cli(&store, "viewer", &["show", &done, "--payload"]);
    assert!(code == Some(1) && output.contains("permission denied") && !output.contains("secret"), "{output}");

    let acts: [(&[&str], &str); 10] = [
        (&["snooze", &*waiting[0], "--by", "1h"], "snoozed"),
        (&["run-now", &*waiting[0]], "ready"),
        (&["priority", &*waiting[0], "--to", "7"], "changed"),
        (&["reschedule", &*waiting[0], "--at", "2030-01-01T00:00:00Z"], "rescheduled"),
        (&["requeue", &*dead], "requeued"),
        (&["cancel", &*waiting[1]], "cancelled"),
        (&["cancel", "--all", "--queue", "mail", "--yes"], "cancelled 2 jobs"),
        (&["capacity", "mail", "10"], "10"),
        (&["pause", "--queue", "mail"], "paused queue mail"),
        (&["resume", "--queue", "mail"], "resumed queue mail"),
    ];
    for (arguments, expected) in acts {
        let (code, output) = cli(&store, "viewer", arguments);
        assert!(code != Some(0) && output.contains("permission denied"), "viewer {arguments:?}: {output}");
        let (code, output) = cli(&store, "ops", arguments);
        assert!(code == Some(0) && output.contains(expected), "ops {arguments:?}: {output}");
    }
    let job = JobRef::from_id(dead.parse().unwrap());
    assert!(job.find(&store.pool("ops")).await.unwrap().payload.is_some());
    assert!(job.find_without_payload(&store.pool("viewer")).await.unwrap().payload.is_none());
    store.server.stop().unwrap();
}

/// The roles of another store apply to that store only.
#[tokio::test]
#[ignore = "deep"]
async fn a_store_of_another_name_has_roles_of_that_name() {
    let store = RoledStore::new().await;
    let billing = Store::new("billing").unwrap();
    let mut admin = store.db.pool.acquire().await.unwrap();
    migrate(&mut admin, billing).await.unwrap();
    Roles::of(billing).apply(&mut admin).await.unwrap();
    Roles::of_producer(billing, "clerk", &["invoices"]).unwrap().apply(&mut admin).await.unwrap();
    store.run("alter role clerk login; create role till login; grant billing_producer to till").await;
    let enqueue = async |user: &str, queue: &str| ok().enqueue(&store.pool(user)).queue(queue).store(billing).await;
    enqueue("till", "any").await.unwrap();
    enqueue("clerk", "invoices").await.unwrap();
    let refused = enqueue("clerk", "any").await.unwrap_err();
    assert!(refused.to_string().contains("the role clerk may not enqueue into the queue any"), "{refused}");
    store.is_denied("web", "select billing.enqueue('do', '{}')").await;
    store.is_denied("till", "select queue.enqueue('do', '{}')").await;
    assert_eq!(store.db.count("select count(*) from billing.job").await.unwrap(), 2);
    store.server.stop().unwrap();
}

/// Queues cannot be assigned to the store's own roles or to the store's owner, because such a role would keep its other privileges.
#[tokio::test]
#[ignore = "deep"]
async fn a_producer_for_some_queues_is_neither_a_role_of_the_store_nor_its_owner() {
    let store = RoledStore::new().await;
    for role in ["queue_owner", "queue_worker", "queue_producer"] {
        let refused = Roles::of_producer(Store::default(), role, &["mail"]).unwrap_err();
        assert!(matches!(refused, Error::OutOfRange { .. }), "{refused}");
    }
    let mut admin = store.db.pool.acquire().await.unwrap();
    let (odd, app) = (Store::new("queue_role").unwrap(), "app");
    store.run("create role app; create schema queue_role authorization app").await;
    migrate(&mut admin, odd).await.unwrap();
    let refused = Roles::of_producer(odd, app, &["mail"]).unwrap().apply(&mut admin).await.unwrap_err();
    assert!(refused.to_string().contains("the role app owns the store"), "{refused}");
    // The schema has the name of a placeholder in the role statements. Applying the roles again restores privileges that were manually
    // revoked from the schema's owner.
    Roles::of(odd).apply(&mut admin).await.unwrap();
    store.run("revoke all on all tables in schema queue_role from queue_role_owner").await;
    Roles::of(odd).apply(&mut admin).await.unwrap();
    store.run("create role till login; grant queue_role_producer to till").await;
    ok().enqueue(&store.pool("till")).store(odd).await.unwrap();
    store.server.stop().unwrap();
}

/// In a schema created for a user, all objects belong to that user, regardless of the migrating role.
#[tokio::test]
#[ignore = "deep"]
async fn a_store_in_a_users_schema_belongs_to_that_user() {
    let store = RoledStore::new().await;
    store.run("create role app; create schema app authorization app").await;
    migrate(&mut store.pool("postgres").acquire().await.unwrap(), Store::new("app").unwrap()).await.unwrap();
    let made = "select count(*) from pg_class c where c.relnamespace = 'app'::regnamespace";
    assert!(store.db.count(made).await.unwrap() > 50);
    assert_eq!(store.db.count(&format!("{made} and c.relowner <> 'app'::regrole")).await.unwrap(), 0);
    store.server.stop().unwrap();
}

/// The migrating role is a member of the owner role, or a superuser.
#[tokio::test]
#[ignore = "deep"]
async fn objects_of_later_migrations_belong_to_the_owner_and_are_closed() {
    const LATER: [Migration; 2] = [
        Migration::new(
            migrate::LATEST + 1,
            "one",
            "create table queue.later (n int); create function queue.later() returns int language sql return 1;",
        ),
        Migration::new(migrate::LATEST + 2, "two", "create table queue.later_still (n int);"),
    ];
    let store = RoledStore::new().await;
    for (user, known) in [("migrator", 1), ("postgres", 2)] {
        let pool = store.pool(user);
        let mut on = pool.acquire().await.unwrap();
        let done = migrate_with(&mut on, Store::default(), &LATER[..known], Duration::from_secs(10)).await.unwrap();
        assert_eq!(done, [migrate::LATEST + i32::try_from(known).unwrap()]);
        let (path, role): (String, String) =
            sqlx::query_as("select current_setting('search_path'), current_user::text").fetch_one(&mut *on).await.unwrap();
        assert_eq!((path.as_str(), role.as_str()), ("\"$user\", public", user), "unchanged");
    }
    let owners = "select count(*) from pg_class c where c.oid in ('queue.later'::regclass, 'queue.later_still'::regclass) and c.relowner = 'queue_owner'::regrole";
    assert_eq!(store.db.count(owners).await.unwrap(), 2);
    store.is_denied("web", "select queue.later()").await;
    let runner = store.pool("runner");
    let done = migrate_with(&mut runner.acquire().await.unwrap(), Store::default(), &LATER, Duration::ZERO).await;
    assert!(done.is_ok_and(|done| done.is_empty()), "there is nothing to do");
    store.run("delete from queue.migration where name = 'two'; drop table queue.later_still").await;
    let refused = migrate_with(&mut runner.acquire().await.unwrap(), Store::default(), &LATER, Duration::ZERO).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("permission denied")), "and else it takes the owner");
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_workers_privileges_suffice_for_its_metrics() {
    let (store, address) = (RoledStore::new().await, free_address().await);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(store.pool("runner")).register::<Do>().queue("default", 5).health(address);
    let running = tokio::spawn(worker.run(async move { stopped.await.unwrap_or_default() }));
    ok().enqueue(&store.pool("web")).queue("elsewhere").await.unwrap();
    let scrape = async || get(address, "/metrics").await.map(|(_, text)| text).unwrap_or_default();
    let expected =
        ["\nqueue_store_reachable 1\n", "\nqueue_ready_oldest_seconds{messaging_destination_name=\"elsewhere\"} ", "\nqueue_snapshot_age "];
    within(Duration::from_mins(1), "the store is seen", async || {
        let text = scrape().await;
        expected.iter().all(|line| text.contains(line))
    })
    .await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
