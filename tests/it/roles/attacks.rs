//! Tests attacks by database users who are members of the store's roles.

use queue_core::{Error, Job as _, Queue, Roles, Store, operate::SignalOutcome};
use tests::{Act, Do};

use super::RoledStore;

fn ok() -> Do {
    Do { act: Act::Ok("done".into()) }
}

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_sees_no_payload_touches_no_entry_and_calls_nothing_else() {
    let store = RoledStore::new().await;
    let job = ok().enqueue(&store.pool("web")).await.unwrap().id();
    for sql in [
        "select payload from queue.job",
        "select id from queue.job",
        "select * from queue.jobs",
        "copy queue.job to stdout",
        "select * from queue.find(1)",
        "select * from queue.reader_list()",
        "select * from queue.list(payload => true)",
        "delete from queue.ready",
        "insert into queue.ready (lane, seq, id) values (1, 1, 1)",
        "insert into queue.job (id, lane, max_attempts, payload) values (1, 1, 1, '{}')",
        "update queue.job set payload = '{}'",
        "update queue.capacity set capacity = 0",
        "insert into queue.producer_queue values ('web', 'mail')",
        "select nextval('queue.id_seq')",
        "select setval('queue.id_seq', 1)",
        "select queue.take_capacity('mail', 1000000)",
        "select queue.set_capacity('default', 0)",
        "select queue.pause('*')",
        "insert into queue.paused (queue, job_type, id) values ('*', '*', 1)",
        "select queue.unblock(0, 1)",
        "select queue.worker_add_days(1)",
        "select queue.drop_day('0')",
        "select queue.worker_drop_day('0')",
        "select queue.ensure_lane('any', 'thing', 1, false)",
        "select queue.wake('default')",
        "select queue.notify('wake', 'default')",
        "select * from queue.secret",
        "select from queue.stripe for share",
        "select queue.lock_stripe('keys', 1)",
        "create table queue.mine (n int)",
        "create function queue.next_id() returns bigint language sql return 1",
        "create or replace function queue.payload_limit() returns integer language sql immutable return 1000000000",
        "create trigger mine after insert on queue.job execute function queue.next_id()",
        "drop function queue.enqueue",
        "alter function queue.insert_job security invoker",
        "grant all on queue.job to web",
        "set role queue_owner",
        "set role queue_worker",
    ] {
        store.is_denied("web", sql).await;
    }
    for act in ["cancel", "requeue", "discard", "run_now"] {
        store.is_denied("web", &format!("select queue.{act}({job})")).await;
    }
    let refused = Queue::new(&store.pool("web")).set_capacity("default", Some(0)).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_creates_and_drops_only_days_and_writes_no_job() {
    let store = RoledStore::new().await;
    let days = "select count(*) from pg_class where relnamespace = 'queue'::regnamespace";
    let before = store.db.count(days).await.unwrap();
    for sql in [
        "create table queue.job_20990101 (n int)",
        "drop table queue.job_default",
        "alter table queue.job detach partition queue.job_default",
        "truncate queue.ready",
        "insert into queue.job (id, lane, max_attempts, payload) values (1, 1, 1, '{}')",
        "update queue.job set payload = '{}'",
        "select queue.add_days(1000)",
        "select queue.drop_day('-30 days', 1000000000)",
        "select queue.requeue(1)",
        "select queue.set_capacity('default', 0)",
        "update queue.capacity set capacity = 0",
        "select setval('queue.id_seq', 1)",
        "select * from queue.secret",
        "select from queue.stripe for share",
        "select queue.lock_stripe('keys', 1)",
        "insert into queue.migration (version, name, hash, compatible) values (1000, 'x', 0, 1000)",
    ] {
        store.is_denied("runner", sql).await;
    }
    for sql in [
        "select queue.worker_add_days(61)",
        "select queue.worker_add_days(-1)",
        "select queue.worker_add_days(null)",
        "select queue.worker_drop_day('-1 second')",
        "select queue.worker_drop_day(null)",
    ] {
        let refused = store.tries("runner", sql).await.unwrap_err();
        assert!(refused.starts_with("22023 "), "{sql}: {refused}");
    }
    assert_eq!(store.db.count(days).await.unwrap(), before);
    store.server.stop().unwrap();
}

/// Statements that set an attacking producer's search path and create its temporary objects.
const SESSION: &str = "
    set search_path = web, public, pg_catalog;
    create temporary table job (id bigint, lane bigint, max_attempts smallint, payload jsonb, meta jsonb);
    create temporary table type_options (job_type text, queue text, priority smallint, max_attempts smallint);
    create temporary table idle (queue text);
    create temporary table lane (lane bigint, has_capacity boolean);
    create temporary table ready (lane bigint, seq bigint, id bigint);
    create temporary table scheduled (run_at timestamptz, id bigint, lane bigint);
    create temporary table secret (wake text, over text, marks text);
    create temporary table pg_roles (rolname name, oid oid);";

/// Statements that create the attacker's functions, operators and types, which shadow the server's own.
const SHADOWS: &str = "
    create function web.take() returns void language plpgsql as $$ begin
      execute 'grant queue_owner to web'; raise exception 'taken'; end $$;
    create function web.jsonb_build_object(text, text) returns jsonb language plpgsql as $$ begin perform web.take(); return '{}'; end $$;
    create function web.octet_length(text) returns int language plpgsql as $$ begin perform web.take(); return 1; end $$;
    create function web.clock_timestamp() returns timestamptz language plpgsql as $$ begin perform web.take(); return now(); end $$;
    create function web.pg_notify(text, text) returns void language plpgsql as $$ begin perform web.take(); end $$;
    create function web.current_setting(text) returns text language plpgsql as $$ begin perform web.take(); return 'none'; end $$;
    create function web.has_function_privilege(name, text, text) returns boolean language plpgsql as $$ begin perform web.take(); return true; end $$;
    create function web.has_table_privilege(oid, text) returns boolean language plpgsql as $$ begin return true; end $$;
    create function web.same(text, text) returns boolean language plpgsql as $$ begin perform web.take(); return true; end $$;
    create operator web.= (leftarg = text, rightarg = text, function = web.same);
    create function web.same(bigint, bigint) returns boolean language plpgsql as $$ begin perform web.take(); return true; end $$;
    create operator web.= (leftarg = bigint, rightarg = bigint, function = web.same);
    create function web.other(text, text) returns boolean language plpgsql as $$ begin perform web.take(); return true; end $$;
    create operator web.<> (leftarg = text, rightarg = text, function = web.other);
    create function web.more(int, int) returns boolean language plpgsql as $$ begin perform web.take(); return false; end $$;
    create operator web.> (leftarg = int, rightarg = int, function = web.more);
    create operator web.< (leftarg = int, rightarg = int, function = web.more);
    create function web.later(timestamptz, timestamptz) returns boolean language plpgsql as $$ begin perform web.take(); return false; end $$;
    create operator web.> (leftarg = timestamptz, rightarg = timestamptz, function = web.later);
    create operator web.< (leftarg = timestamptz, rightarg = timestamptz, function = web.later);
    create function web.also(jsonb, text) returns text language plpgsql as $$ begin perform web.take(); return 'mail'; end $$;
    create operator web.->> (leftarg = jsonb, rightarg = text, function = web.also);
    create function web.caught(pg_catalog.text) returns boolean language plpgsql as $$ begin perform web.take(); return true; end $$;
    create domain web.text as pg_catalog.text check (web.caught(value));";

/// The attacker's objects have the same names as objects that the SQL entry points use. The attacker's search path finds the attacker's
/// objects first. If an entry point used such an object, the attacker would gain the owner's privileges.
#[tokio::test]
#[ignore = "deep"]
async fn no_sql_entry_point_uses_objects_of_its_caller() {
    let store = RoledStore::new().await;
    store.run("create schema web authorization web").await;
    store.tries("web", SHADOWS).await.unwrap();
    let job = ok().enqueue(&store.pool("web")).await.unwrap().id();
    // An idle row makes the enqueues notify a worker.
    store.run("insert into queue.idle values ('*', gen_random_uuid())").await;
    for sql in [
        "select queue.enqueue('do', '{}')".to_owned(),
        "select queue.producer_enqueue('do', '{}')".to_owned(),
        "select queue.insert_job('do', '{}', 'default', 100, 20)".to_owned(),
        "select queue.insert_job('do', '{}', 'new', 100, 20, '2100-01-01', '{}')".to_owned(),
        "select queue.enqueue('do', '{}', '{\"queue\": \"mail\", \"key\": \"k\", \"meta\": {\"a\": 1}}')".to_owned(),
        "select queue.enqueue_with('do', '{}', '{\"unique_key\": \"u\", \"on_conflict\": \"replace\"}') from generate_series(1, 2)"
            .to_owned(),
        "select queue.try_enqueue('do', '{}', '{\"after\": 7}')".to_owned(),
        "select queue.producer_lock_keys('{a}', '{b}', false)".to_owned(),
        format!("select * from queue.status({job})"),
        format!("select * from queue.job_states('{{{job}}}')"),
        format!("select * from queue.wait({job}, '1 ms')"),
        "select queue.announce_waiter(gen_random_uuid()), queue.leave_waiter(gen_random_uuid()), queue.channel('over')".to_owned(),
    ] {
        let done = store.tries("web", &format!("{SESSION} {sql}")).await;
        assert!(done.is_ok(), "{sql}: {done:?}");
    }
    // A producer cannot give its job the uniqueness key of another job, or the tick of a schedule.
    for system in [
        r#"{"unique": "00000000-0000-0000-0000-000000000000"}"#,
        r#"{"schedule": "a", "tick": "b"}"#,
        r#"{"skips": true}"#,
        "[]",
        "null",
        "7",
    ] {
        let forged = format!("select queue.enqueue('do', '{{}}', '{{\"system\": {system}}}')");
        let refused = store.tries("web", &forged).await;
        assert!(refused.as_ref().is_err_and(|error| error.starts_with("22023 ")), "{system}: {refused:?}");
    }
    let jobs = store.db.count("select count(*) from queue.job").await.unwrap();
    assert_eq!(jobs, 8, "each was enqueued, in the store's own tables");
    assert_eq!(
        store
            .db
            .count("select count(*) from pg_auth_members where member = 'web'::regrole and roleid = 'queue_owner'::regrole")
            .await
            .unwrap(),
        0
    );
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_for_some_queues_enqueues_in_no_other_by_any_way() {
    let store = RoledStore::new().await;
    let mailer = store.pool("mailer");
    ok().enqueue(&mailer).queue("mail").await.unwrap();
    ok().enqueue(&mailer).queue("news").key("k").await.unwrap();
    assert_eq!(Do::enqueue_all((0..10).map(|_| ok()), &mailer).queue("mail").await.unwrap(), 10);
    store.tries("mailer", "select queue.enqueue('do', '{}', '{\"queue\": \"mail\"}')").await.unwrap();
    let jobs = store.db.count("select count(*) from queue.job").await.unwrap();
    for sql in [
        "select queue.enqueue('do', '{}')",
        "select queue.enqueue('do', '{}', '{\"queue\": \"secret\"}')",
        "select queue.enqueue_with('do', '{}', '{\"queue\": \"secret\", \"key\": \"k\"}')",
        "select queue.try_enqueue('do', '{}', '{\"queue\": \"secret\"}')",
        "select queue.producer_enqueue('do', '{}')",
        "select queue.producer_enqueue_with('do', '{}', '{\"queue\": \"secret\"}')",
        "select queue.producer_enqueue_with('do', '{}', '{}')",
        "select queue.insert_job('do', '{}', 'secret', 100, 20)",
        "select queue.insert_job('do', '{}', null, 100, 20)",
        "set role mailer; select queue.insert_job('do', '{}', 'secret', 100, 20)",
        "select set_config('role', 'none', false); select queue.insert_job('do', '{}', 'secret', 100, 20)",
        "set role postgres",
        "set session authorization web",
        "select queue.any_queue()",
        "insert into queue.producer_queue values ('mailer', 'secret')",
        "create or replace function queue.limits_producers() returns boolean language sql immutable return false",
    ] {
        store.is_denied("mailer", sql).await;
    }
    let refused = ok().enqueue(&mailer).queue("secret").await.unwrap_err();
    assert!(refused.to_string().contains("the role mailer may not enqueue into the queue secret"), "{refused}");
    let refused = Do::enqueue_all((0..10).map(|_| ok()), &mailer).queue("secret").await.unwrap_err();
    assert!(matches!(&refused, Error::Database(error) if error.to_string().contains("may not enqueue")), "{refused}");
    // The workers of the job's type have published options that would send the job to a queue that the producer may not use.
    store.run("insert into queue.type_options values ('typed', 'secret', 100, 20)").await;
    store.is_denied("mailer", "select queue.enqueue('typed', '{}')").await;
    store.is_denied("mailer", "select queue.enqueue('typed', '{}', '{\"key\": \"k\"}')").await;
    // A producer cannot enqueue in a queue that is assigned only to another producer.
    store.run("insert into queue.producer_queue values ('nobody_else', 'private')").await;
    store.is_denied("mailer", "select queue.enqueue('do', '{}', '{\"queue\": \"private\"}')").await;
    assert_eq!(store.db.count("select count(*) from queue.job").await.unwrap(), jobs);
    // A signal requires the privilege to enqueue in the job's queue. A role that may operate on jobs may signal any job.
    let own = ok().enqueue(&mailer).queue("mail").await.unwrap();
    assert_eq!(own.signal(&mailer, "go", &1).await.unwrap(), SignalOutcome::Sent);
    let secret = ok().enqueue(&store.db.pool).queue("secret").await.unwrap();
    for before in ["", "select set_config('role', 'none', false); "] {
        store.is_denied("mailer", &format!("{before}select queue.signal({}, 'go')", secret.id())).await;
        let borrowed = store.tries("mailer", &format!("{before}select queue.signal({}, 'go', caller => 'web')", secret.id())).await;
        assert!(borrowed.as_ref().is_err_and(|error| error.contains("caller_is_oneself")), "{borrowed:?}");
    }
    for anywhere in ["web", "ops"] {
        assert_eq!(secret.signal(&store.pool(anywhere), "go", &1).await.unwrap(), SignalOutcome::Sent, "{anywhere}");
    }
    assert_eq!(store.db.count("select count(*) from queue.signal").await.unwrap(), 3);
    // Options published for another type do not apply. Options published for the job's own type apply.
    store.run("insert into queue.type_options values ('mailed', 'mail', 100, 20)").await;
    store.tries("mailer", "select queue.enqueue('mailed', '{}')").await.unwrap();
    for (row, constraint) in [("'mailer', 'mail'", "producer_queue_pkey"), ("'mailer', ' '", "producer_queue_is_a_name")] {
        let refused = sqlx::query(sqlx::AssertSqlSafe(format!("insert into queue.producer_queue values ({row})")));
        let refused = refused.execute(&store.db.pool).await.unwrap_err().to_string();
        assert!(refused.contains(constraint), "{refused}");
    }

    // Producers without assigned queues are not restricted. A later assignment of queues replaces the earlier one.
    ok().enqueue(&store.pool("web")).queue("secret").await.unwrap();
    let roles = Roles::of_producer(Store::default(), "mailer", &["secret"]).unwrap();
    roles.apply(&mut store.db.pool.acquire().await.unwrap()).await.unwrap();
    ok().enqueue(&mailer).queue("secret").await.unwrap();
    assert!(ok().enqueue(&mailer).queue("mail").await.is_err());
    store.server.stop().unwrap();
}

/// A caller of another user's security definer function enqueues with that user's privileges.
#[tokio::test]
#[ignore = "deep"]
async fn a_function_of_another_user_enqueues_with_that_users_privileges() {
    let store = RoledStore::new().await;
    store.run("create schema app authorization web; grant usage on schema app to public").await;
    store
        .tries(
            "web",
            "create function app.sign_up() returns bigint language sql security definer set search_path = pg_catalog, pg_temp
        as $$ select queue.enqueue('do', '{}', '{\"queue\": \"welcome\"}') $$",
        )
        .await
        .unwrap();
    store.tries("nobody_else", "select app.sign_up()").await.unwrap();
    store.tries("viewer", "select app.sign_up()").await.unwrap();
    store.tries("mailer", "select app.sign_up()").await.unwrap();
    store.is_denied("nobody_else", "select queue.enqueue('do', '{}')").await;
    assert_eq!(store.db.count("select count(*) from queue.job").await.unwrap(), 3);
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_reader_reads_no_payload_by_any_way_and_changes_nothing() {
    let store = RoledStore::new().await;
    let job = Do { act: Act::Ok("secret".into()) }.enqueue(&store.pool("web")).await.unwrap().id();
    for sql in [
        "select payload from queue.job".to_owned(),
        "select * from queue.job".to_owned(),
        "select j from queue.job j".to_owned(),
        "select count(*) from queue.job where payload::text like '%secret%'".to_owned(),
        "select payload from queue.jobs".to_owned(),
        "select output from queue.jobs".to_owned(),
        "select output from queue.done".to_owned(),
        "select checkpoint from queue.progress".to_owned(),
        "select token from queue.lease".to_owned(),
        "select * from queue.list()".to_owned(),
        "select * from queue.list(payload => true)".to_owned(),
        format!("select * from queue.find({job})"),
        format!("select * from queue.status({job})"),
        format!("select * from queue.cancel({job})"),
        "select id from queue.job for update".to_owned(),
        "begin; lock table queue.ready in access exclusive mode".to_owned(),
        "select queue.enqueue('do', '{}')".to_owned(),
        "select queue.channel('over')".to_owned(),
        "select queue.notify('over', '')".to_owned(),
        "select * from queue.secret".to_owned(),
    ] {
        store.is_denied("viewer", &sql).await;
    }
    for sql in ["delete from queue.ready", "update queue.job set lane = 1", "insert into queue.dead values (1, now(), 1, 1, 1, 'x')"] {
        store.is_denied("ops", sql).await;
    }
    let days: Vec<String> =
        sqlx::query_scalar("select relid::text from pg_partition_tree('queue.job') where isleaf").fetch_all(&store.db.pool).await.unwrap();
    for day in days {
        for user in ["viewer", "web", "ops", "mailer", "nobody_else"] {
            store.is_denied(user, &format!("select * from {day}")).await;
        }
    }
    store.server.stop().unwrap();
}
