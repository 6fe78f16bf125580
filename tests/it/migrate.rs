//! Tests schema migrations. Of several concurrent callers, one applies the migrations. A schema that this release does not support is
//! rejected and left unchanged.

use queue_core::{Error, Job as _, JobState, Store, migrate};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{Act, Do, TestDb, eventually};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

fn quick() -> Do {
    Do { act: Act::Ok("done".into()) }
}

#[tokio::test]
async fn f56_of_ten_concurrent_migrations_one_applies_and_all_succeed() {
    let db = TestDb::new().await;
    let store = Store::new("fresh").unwrap();
    let mut starts = Vec::new();
    for _ in 0..10 {
        let mut connection = connect(&db).await;
        starts.push(tokio::spawn(async move { migrate(&mut connection, store).await }));
    }
    let mut applied = Vec::new();
    for start in starts {
        applied.push(start.await.unwrap().unwrap());
    }
    applied.sort();
    assert!(applied[..9].iter().all(Vec::is_empty), "{applied:?}");
    assert_eq!(applied[9], (1..=migrate::LATEST).collect::<Vec<_>>());
    assert_eq!(db.count("select count(*) from fresh.migration").await, i64::from(migrate::LATEST));
    migrate::verify(&mut connect(&db).await, store).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_schema_that_cannot_hold_a_store_is_refused_with_a_clear_error_and_left_unchanged() {
    let db = TestDb::new().await;
    for schema in ["pg_queue", "pg_catalog", "pg_", "information_schema"] {
        let error = Store::new(schema).unwrap_err().to_string();
        assert!(error.contains(schema) && error.contains("PostgreSQL's own"), "{error}");
    }
    for (own, named) in [
        ("create table theirs.job (n int)", "job"),
        ("create view theirs.lane as select 1 as n", "lane"),
        ("create function theirs.next_id() returns bigint language sql return 1", "next_id"),
        ("create type theirs.options as (n int)", "options"),
        ("create sequence theirs.id_seq", "id_seq"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(format!("create schema theirs; {own}"))).execute(&db.pool).await.unwrap();
        let error = migrate(&mut connect(&db).await, Store::new("theirs").unwrap()).await.unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::ForeignSchema { .. }), "{own}: {error:?}");
        assert!(message.contains("`theirs`") && message.contains(named) && message.contains("name another schema"), "{own}: {message}");
        let left = "select (select count(*) from pg_class where relnamespace = 'theirs'::regnamespace and relname = 'migration')";
        assert_eq!(db.count(left).await, 0, "{own}");
        sqlx::raw_sql("drop schema theirs cascade").execute(&db.pool).await.unwrap();
    }
    db.finish().await;
}

#[tokio::test]
async fn f56_a_newer_schema_is_refused_and_left_unchanged() {
    let db = TestDb::new().await;
    sqlx::query("insert into queue.migration (version, name, hash, compatible) values (1000, 'from the future', 0, 1000)")
        .execute(&db.pool)
        .await
        .unwrap();
    let mut connection = connect(&db).await;
    for refused in [
        migrate(&mut connection, Store::default()).await.map(drop),
        migrate::verify(&mut connection, Store::default()).await,
        migrate::status(&mut connection, Store::default()).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::NewerSchema { found: 1000, known: migrate::LATEST, .. }), "{error:?}");
        assert!(error.to_string().contains("deploy the newer release"), "{error}");
    }
    let error = db.worker().run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, queue_worker::Error::Core(Error::NewerSchema { .. })), "{error:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_migration_that_was_changed_after_its_release_is_refused() {
    let db = TestDb::new().await;
    sqlx::query("update queue.migration set hash = hash + 1 where version = 2").execute(&db.pool).await.unwrap();
    let error = migrate(&mut connect(&db).await, Store::default()).await.unwrap_err();
    assert!(matches!(error, Error::ChangedMigration { version: 2, .. }), "{error:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing_behind() {
    let db = TestDb::new().await;
    // A user's object conflicts with an object that the second half of the migration creates.
    sqlx::raw_sql("create schema crowded; create view crowded.unfinished_job as select 1").execute(&db.pool).await.unwrap();
    let mut connection = connect(&db).await;
    let store = Store::new("crowded").unwrap();
    migrate(&mut connection, store).await.unwrap_err();
    assert_eq!(db.count("select count(*) from pg_class where relnamespace = 'crowded'::regnamespace").await, 1);
    assert!(migrate::status(&mut connection, store).await.unwrap().iter().all(|migration| migration.applied_at.is_none()));
    sqlx::query("drop view crowded.unfinished_job").execute(&db.pool).await.unwrap();
    assert_eq!(migrate(&mut connection, store).await.unwrap().len(), usize::try_from(migrate::LATEST).unwrap());
    db.finish().await;
}

#[tokio::test]
async fn without_tables_worker_and_producer_name_the_fix() {
    let db = TestDb::new().await;
    let store = Store::new("nowhere").unwrap();
    let enqueued = quick().enqueue(&db.pool).store(store).await.unwrap_err();
    let run = db.worker().store(store).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(enqueued, Error::NotMigrated { .. }), "{enqueued}");
    assert!(matches!(run, queue_worker::Error::Core(Error::NotMigrated { .. })), "{run}");
    for text in [enqueued.to_string(), run.to_string()] {
        assert!(text.contains("`nowhere`") && text.contains("queue-worker migrate"), "{text}");
    }
    db.finish().await;
}

/// Returns the definitions of all objects in a schema, without the schema's name.
async fn catalog(connection: &mut PgConnection, schema: &str) -> Vec<String> {
    let everything = "
      with s as (select oid, nspname from pg_namespace where nspname = $1), things as (
        select 'column ' || table_name || '.' || ordinal_position || ' ' || column_name || ' ' || data_type || ' ' || udt_name || ' '
          || is_nullable || ' ' || coalesce(column_default, '') as thing from information_schema.columns where table_schema = $1
        union all select 'relation ' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(c.reloptions::text, '') || ' '
          || coalesce(pg_get_expr(c.relpartbound, c.oid), '') from pg_class c join s on c.relnamespace = s.oid
        union all select 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(c.oid)
          from pg_constraint c join s on c.connamespace = s.oid
        union all select 'index ' || indexdef from pg_indexes where schemaname = $1
        union all select 'function ' || pg_get_functiondef(p.oid) from pg_proc p join s on p.pronamespace = s.oid
        union all select 'view ' || viewname || ' ' || definition from pg_views where schemaname = $1
        union all select 'storage ' || a.attrelid::regclass || '.' || attname || ' ' || attstorage::text
          from pg_attribute a join pg_class c on c.oid = a.attrelid join s on c.relnamespace = s.oid where attnum > 0
      )
      select replace(replace(thing, quote_ident(nspname) || '.', 'S.'), nspname, 'S') from things, s order by 1";
    sqlx::query_scalar(everything).bind(schema).fetch_all(connection).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn the_printed_sql_makes_the_same_store_as_the_migration() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let (migrated, printed) = (Store::new("by-hand.1").unwrap(), Store::new("by-file.2").unwrap());
    migrate(&mut connection, migrated).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(migrate::print(printed))).execute(&mut connection).await.unwrap();
    let (one, other) = (catalog(&mut connection, "by-hand.1").await, catalog(&mut connection, "by-file.2").await);
    assert!(one.len() > 150, "{} things", one.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
    let default = catalog(&mut connection, "queue").await;
    assert_eq!(default.len(), one.len(), "and the default store has as many");
    assert_eq!(migrate(&mut connection, printed).await.unwrap(), [] as [i32; 0], "a later migration finds nothing to do");
    migrate::verify(&mut connection, printed).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn stores_of_other_names_work_beside_the_default_one() {
    let db = TestDb::new().await;
    let longest = "queue.".repeat(8);
    for schema in ["tenant.a-1", "Queue", "1", longest.as_str()] {
        let store = Store::new(schema).unwrap();
        migrate(&mut connect(&db).await, store).await.unwrap();
        let here = quick().enqueue(&db.pool).await.unwrap().id();
        let mut config = queue_worker::Config::default();
        config.store = store;
        config.poll_interval = std::time::Duration::from_hours(1);
        let worker = queue_worker::Worker::new(db.pool.clone()).config(config).register::<Do>();
        let states = format!("select count(*) from \"{schema}\".jobs where state = 'completed'");
        db.run_while(worker, async {
            let idle = format!("select count(*) from \"{schema}\".idle");
            eventually("it sleeps", async || db.count(&idle).await == 1).await;
            quick().enqueue(&db.pool).store(store).await.unwrap();
            eventually("it was woken", async || db.count(&states).await == 1).await;
            let retried = Do { act: Act::FailUntil(2) }.enqueue(&db.pool).store(store).await.unwrap();
            eventually("a retry is completed", async || db.count(&states).await == 2).await;
            let failed = format!("select count(*) from \"{schema}\".failure where id = {}", retried.id());
            assert_eq!(db.count(&failed).await, 1);
        })
        .await;
        assert_eq!(db.state(here).await, Some(JobState::Ready), "the default store's worker is another");
        assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    }
    db.finish().await;
}

#[tokio::test]
async fn a_users_own_migrations_are_left_alone() {
    let db = TestDb::new().await;
    let users = "create table public.migration (version text, mine boolean); insert into public.migration values ('a', true);
       create table public._sqlx_migrations (version bigint); insert into public._sqlx_migrations values (7);
       create schema mine; create table mine.job (id text); create table mine.migration (version text); set search_path = mine, public";
    let mut connection = connect(&db).await;
    sqlx::raw_sql(users).execute(&mut connection).await.unwrap();
    migrate(&mut connection, Store::new("fresh").unwrap()).await.unwrap();
    migrate(&mut connection, Store::default()).await.unwrap();
    quick().enqueue(&mut connection).await.unwrap();
    assert_eq!(db.count("select count(*) from public.migration where version = 'a' and mine").await, 1);
    assert_eq!(db.count("select count(*) from public._sqlx_migrations where version = 7").await, 1);
    assert_eq!(db.count("select count(*) from mine.job").await + db.count("select count(*) from mine.migration").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn f21_a_hostile_search_path_has_no_effect() {
    let db = TestDb::new().await;
    let hostile = "create schema hostile;
       create table hostile.job (id bigint, lane bigint, max_attempts smallint, payload jsonb);
       create table hostile.ready (lane bigint, seq bigint, id bigint);
       create function hostile.now() returns timestamptz language sql as 'select timestamptz ''1999-01-01''';
       create function hostile.clock_timestamp() returns timestamptz language sql as 'select timestamptz ''1999-01-01''';
       create function hostile.nextval(regclass) returns bigint language sql as 'select 1::bigint';
       create function hostile.pg_notify(text, text) returns void language plpgsql as $$ begin raise 'hostile'; end $$;
       create function hostile.sha256(bytea) returns bytea language sql as 'select ''\\x00''::bytea';
       set search_path = hostile, pg_catalog";
    let mut connection = connect(&db).await;
    sqlx::raw_sql(hostile).execute(&mut connection).await.unwrap();
    sqlx::query("insert into queue.idle (queue, worker) values ('*', pg_catalog.gen_random_uuid())")
        .execute(&mut connection)
        .await
        .unwrap();
    let job = quick().enqueue(&mut connection).after(std::time::Duration::from_millis(1)).await.unwrap();
    let age = chrono::Utc::now() - job.id().enqueued_at().unwrap();
    assert!(age.num_minutes() < 1, "{age}");
    migrate(&mut connection, Store::new("fresh").unwrap()).await.unwrap();
    let bound: Vec<String> =
        catalog(&mut connect(&db).await, "fresh").await.into_iter().filter(|thing| thing.contains("hostile")).collect();
    assert_eq!(bound, [] as [String; 0], "nothing of the new store is bound to what is not ours");
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job.id()).await, Some(JobState::Completed));
    assert_eq!(db.count("select count(*) from hostile.job").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_migration_within_a_transaction_leaves_its_settings_alone() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    sqlx::raw_sql("create schema mine; set search_path = mine").execute(&mut connection).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let store = Store::new("fresh").unwrap();
    migrate(&mut tx, store).await.unwrap();
    let path: String = sqlx::query_scalar("show search_path").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(path, "mine");
    tx.rollback().await.unwrap();
    assert!(matches!(migrate::verify(&mut connection, store).await, Err(Error::NotMigrated { .. })), "it went with the transaction");
    db.finish().await;
}
