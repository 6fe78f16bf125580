//! Tests the doctor's findings about the store's tables: migrations, day partitions, indexes, dead rows, sequences, audit entries and
//! counts.

use queue_core::{
    Queue, Store,
    operate::{Checkup, FindingKind},
};
use tests::{TestDb, server::TestServer};

use super::{ask, found_by, is_cured, is_gone, make, one};

async fn found(db: &TestDb, kind: FindingKind) -> bool {
    !found_by(&db.pool, &Checkup::default(), kind).await.is_empty()
}

#[tokio::test]
async fn a_schema_without_a_store_or_with_another_is_found() {
    let db = TestDb::new().await;
    let elsewhere = Store::new("billing").unwrap();
    let absent = Queue::new(&db.pool).store(elsewhere).doctor(&Checkup::default()).await;
    let kinds: Vec<FindingKind> = absent.findings.iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::NoStore) && !kinds.contains(&FindingKind::NoWorker), "{absent:#?}");
    let first = absent.findings.into_iter().find(|finding| finding.kind == FindingKind::NoStore).unwrap();
    assert_eq!(first.fix, "queue-worker migrate --schema billing");
    super::paste(&db.url, &first).await;
    let kinds: Vec<FindingKind> =
        Queue::new(&db.pool).store(elsewhere).doctor(&Checkup::default()).await.findings.iter().map(|finding| finding.kind).collect();
    assert!(!kinds.contains(&FindingKind::NoStore) && kinds.contains(&FindingKind::NoWorker), "{kinds:?}");

    make(&db.pool, "create table kept as select * from queue.migration").await;
    let again = "delete from queue.migration; insert into queue.migration select * from kept";
    for (change, kind) in [
        ("delete from queue.migration where version > 20", FindingKind::MigrationsMissing),
        ("insert into queue.migration (version, name, hash, compatible) values (9999, 'later', 1, 9999)", FindingKind::StoreNewer),
        ("update queue.migration set hash = hash + 1 where version = 3", FindingKind::ForeignStore),
    ] {
        make(&db.pool, change).await;
        let found = ask(&db.pool, &Checkup::default()).await;
        assert!(found.findings.iter().any(|finding| finding.kind == kind), "{kind}: {found:#?}");
        assert!(found.findings.iter().all(|finding| finding.kind != FindingKind::NotLookedAt), "{found:#?}");
        make(&db.pool, again).await;
        is_gone(&db.pool, &Checkup::default(), kind).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn tables_with_row_level_security_are_found_and_cured() {
    let db = TestDb::new().await;
    let reader = format!("r_{}", uuid::Uuid::new_v4().simple());
    make(&db.pool, &format!("create role {reader} login; alter table queue.ready enable row level security")).await;
    assert!(!found(&db, FindingKind::RowSecurity).await, "it hides rows from no login");
    make(&db.pool, &format!("grant select on queue.ready to {reader}")).await;
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::RowSecurity).await;
    make(&db.pool, &format!("drop owned by {reader}; drop role {reader}")).await;
    db.finish().await;
}

#[tokio::test]
async fn missing_and_planted_days_are_found_and_created() {
    let db = TestDb::new().await;
    for kind in [FindingKind::DaysMissing, FindingKind::DayPlanted, FindingKind::DefaultRows, FindingKind::ManyDays] {
        assert!(!found(&db, kind).await, "{kind}");
    }
    let drop_tomorrow = "do $$ begin
      execute (select string_agg(format('drop table queue.%s_%s', p, to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD')), '; ')
        from unnest(array['job', 'done', 'done_many', 'failure', 'step']) p);
    end $$";
    make(&db.pool, drop_tomorrow).await;
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::DaysMissing).await;

    make(&db.pool, drop_tomorrow).await;
    let plant = "do $$ begin
      execute format('create table queue.job_%s (id bigint)', to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD'));
    end $$";
    make(&db.pool, plant).await;
    assert!(one(&db.pool, &Checkup::default(), FindingKind::DayPlanted).await.message.contains("job_2"));
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::DayPlanted).await;
    is_gone(&db.pool, &Checkup::default(), FindingKind::DaysMissing).await;

    let many = Checkup { days: 5, ..Checkup::default() };
    assert_eq!(one(&db.pool, &many, FindingKind::ManyDays).await.facts["days"], 9, "eight days and the default");
    db.finish().await;
}

#[tokio::test]
async fn rows_of_today_in_the_default_partition_are_found_and_those_of_long_ago_are_not() {
    let db = TestDb::new().await;
    let insert = |at: &str| {
        format!(
            "insert into queue.lane (lane, queue, job_type, priority, solo) values (queue.lane_id('d', 'do', 1, false), 'd', 'do', 1, false);
             with new as (insert into queue.job (id, lane, max_attempts, payload)
               values (queue.id_at({at}), queue.lane_id('d', 'do', 1, false), 1, '{{}}') returning id, lane)
             insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'x' from new"
        )
    };
    make(&db.pool, &insert("now() - interval '20 days'")).await;
    assert_eq!(db.count("select count(*) from queue.job_default").await, 1);
    assert!(!found(&db, FindingKind::DefaultRows).await, "it has outlived its day");
    make(&db.pool, &insert("now() - interval '1 day'")).await;
    let finding = one(&db.pool, &Checkup::default(), FindingKind::DefaultRows).await;
    assert_eq!(finding.facts["tables"], serde_json::json!(["job_default"]));
    assert!(!finding.can_be_pasted);
    make(&db.pool, "delete from queue.dead; delete from queue.job").await;
    is_gone(&db.pool, &Checkup::default(), FindingKind::DefaultRows).await;
    db.finish().await;
}

#[tokio::test]
async fn invalid_indexes_are_found_and_rebuilt() {
    let db = TestDb::new().await;
    assert!(!found(&db, FindingKind::InvalidIndex).await);
    make(&db.pool, "update pg_index set indisvalid = false where indexrelid = 'queue.scheduled_by_lane'::regclass").await;
    assert!(one(&db.pool, &Checkup::default(), FindingKind::InvalidIndex).await.message.contains("scheduled_by_lane"));
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::InvalidIndex).await;
    // The fix drops an index that a failed concurrent build has left behind.
    make(&db.pool, "create index ready_moved_ccnew on queue.ready (id)").await;
    make(&db.pool, "update pg_index set indisvalid = false where indexrelid = 'queue.ready_moved_ccnew'::regclass").await;
    assert!(one(&db.pool, &Checkup::default(), FindingKind::InvalidIndex).await.fix.starts_with("drop index"));
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::InvalidIndex).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn dead_rows_and_tables_that_are_not_vacuumed_are_found_and_cured() {
    let db = TestDb::new().await;
    make(&db.pool, "alter table queue.idle set (autovacuum_enabled = off)").await;
    make(&db.pool, "insert into queue.idle select 'q' || n, gen_random_uuid() from generate_series(1, 3000) n").await;
    make(&db.pool, "delete from queue.idle").await;
    let checkup = Checkup { dead_rows: 2000, ..Checkup::default() };
    tests::eventually("it is counted", async || !found_by(&db.pool, &checkup, FindingKind::Bloat).await.is_empty()).await;
    let finding = one(&db.pool, &checkup, FindingKind::Bloat).await;
    assert_eq!((finding.facts["table"].as_str(), finding.facts["dead"].as_i64()), (Some("idle"), Some(3000)));
    is_cured(&db.url, &db.pool, &checkup, FindingKind::Bloat).await;
    is_cured(&db.url, &db.pool, &checkup, FindingKind::TableAutovacuumOff).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn old_transactions_and_sequences_at_their_end_are_found() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    let many = "do $$ begin for i in 1..3000 loop begin insert into effect (job) values (i); exception when others then null; end; end loop; end $$";
    let checkup = Checkup { oldest: 2500, sequence: 0.5, ..Checkup::default() };
    make(&db.pool, many).await;
    make(&db.pool, "vacuum").await;
    is_cured(&server.url("app"), &db.pool, &checkup, FindingKind::Wraparound).await;
    assert!(found_by(&db.pool, &checkup, FindingKind::SequenceEnd).await.is_empty());
    make(&db.pool, "select setval('queue.key_seq', 9000000000000000000)").await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::SequenceEnd).await.facts["sequence"], "key_seq");
    make(&db.pool, "select setval('queue.key_seq', 9)").await;
    is_gone(&db.pool, &checkup, FindingKind::SequenceEnd).await;
    server.stop().unwrap();
}

#[tokio::test]
async fn leftover_audit_entries_and_counts_are_found_and_cured() {
    let db = TestDb::new().await;
    make(&db.pool, "insert into queue.audit (actor, act, what, jobs) select 'a', 'b', 'c', 0 from generate_series(1, 11001)").await;
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::ManyNotes).await;
    assert_eq!(db.count("select count(*) from queue.audit").await, 10_000);

    let zeros = [
        "completed",
        "retried",
        "dead",
        "cancelled",
        "snoozed",
        "released",
        "expired",
        "lease_lost",
        "timed_out",
        "panicked",
        "crashed",
        "run",
        "start",
    ];
    let statement = format!(
        "insert into queue.tallied (at, queue, job_type, {}) select to_timestamp(floor(extract(epoch from now() - interval '1 hour') / 10) * 10), 'q', 't', {}",
        zeros.join(", "),
        zeros.map(|_| "0").join(", ")
    );
    make(&db.pool, &statement).await;
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::TalliesWaiting).await;
    db.finish().await;
}
