//! One flow stops no other: how much a look does, what a cancel has locked, and what is refused because nobody could end it.

use std::time::Duration;

use queue_core::{Flow, IfDead, Job as _, JobId, JobState, Of, OnConflict, Store, operate};
use sqlx::{Connection as _, PgConnection};
use tests::TestDb;

use super::{Act, db, give, part, run, states};

/// As a settle that gave this output.
async fn end(db: &TestDb, job: JobId, output: &str) {
    let over = format!(
        "with gone as (delete from queue.ready where id = {job} returning id)
         insert into queue.done (id, finished_at, ran_ms, attempts, output) select id, now(), 1, 1, {output} from gone;
         select queue.tell_parents(array[{job}])"
    );
    run(db, &over).await;
}

async fn release(db: &TestDb) -> (i32, bool) {
    sqlx::query_as("select moved, more from queue.release_nodes(0, 1000)").fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn what_would_become_gigabytes_is_refused_before_it_is_made() {
    let db = db().await;
    let mut flow = Flow::new("huge");
    let large = flow.add("large", give("large", []));
    let many: Vec<Of<String>> = (0..4500).map(|_| large.output()).collect();
    let huge = flow.add("huge", give("huge", many));
    let fine = flow.add("fine", give("fine", [large.output()]));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    end(&db, flow.job(&large).id(), "to_jsonb(repeat('x', 200000))").await;
    let mut on = db.pool.acquire().await.unwrap();
    // A gigabyte of text would take longer, and far more memory.
    sqlx::query("set statement_timeout = '15s'").execute(&mut *on).await.unwrap();
    let moved: i32 = sqlx::query_scalar("select moved from queue.release_nodes(0, 1000)").fetch_one(&mut *on).await.unwrap();
    sqlx::query("reset statement_timeout").execute(&mut *on).await.unwrap();
    drop(on);
    assert_eq!(moved, 2);
    assert_eq!(states(&db, &flow).await, ["large completed", "huge dead", "fine ready"]);
    let said: String =
        sqlx::query_scalar("select error from queue.dead where id = $1").bind(flow.job(&huge).id()).fetch_one(&db.pool).await.unwrap();
    assert!(said.contains("its payload has 9") && said.contains("the limit is"), "{said}");
    let _ = flow.job(&fine);
    db.finish().await;
}

#[tokio::test]
async fn a_look_fills_few_payloads_and_cancels_one_node_that_is_many() {
    let db = db().await;
    let mut flow = Flow::new("wide");
    let root = flow.add("root", give("root", []));
    for n in 0..150 {
        flow.add(format!("n{n}"), give("n", [root.output()]));
    }
    let root = flow.enqueue(&db.pool).await.unwrap().job(&root).id();
    end(&db, root, "'\"given\"'").await;
    assert_eq!([release(&db).await, release(&db).await, release(&db).await], [(64, true), (64, true), (22, false)]);

    let mut flow = Flow::new("stopped");
    let bad = flow.add("bad", part("bad", Act::Fail, [])).if_dead(IfDead::Cancel);
    for n in 0..3 {
        flow.add_all(format!("n{n}"), (0..4).map(|_| give("n", []))).after(&bad);
    }
    let bad = flow.enqueue(&db.pool).await.unwrap().job(&bad);
    bad.cancel(&db.pool).await.unwrap();
    let cancelled = async || db.count("select count(*) from queue.done where cancelled").await;
    let mut seen = Vec::new();
    while release(&db).await.1 {
        seen.push(cancelled().await);
    }
    assert_eq!(seen, [6, 11, 16], "one node with its four jobs after the other");
    db.finish().await;
}

/// Those that are cancelled before their turn: more of them than payloads that a look fills. Somebody has the edge of the first.
#[tokio::test]
async fn nodes_that_wait_no_more_take_no_room_of_a_look() {
    let db = db().await;
    let mut flow = Flow::new("left");
    let root = flow.add("root", give("root", []));
    let leaves: Vec<_> = (0..90).map(|n| flow.add(format!("n{n}"), give("n", [root.output()]))).collect();
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let gone: Vec<JobId> = leaves.iter().take(80).map(|leaf| flow.job(leaf).id()).collect();
    let cancelled: i64 =
        sqlx::query_scalar("select count(*) from queue.cancel_waiting_all($1)").bind(&gone).fetch_one(&db.pool).await.unwrap();
    assert_eq!(cancelled, 80);
    end(&db, flow.job(&root).id(), "'\"given\"'").await;
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut held = other.begin().await.unwrap();
    sqlx::query("select from queue.edge where target = $1 for update").bind(gone[0]).execute(&mut *held).await.unwrap();
    let mut look = db.pool.begin().await.unwrap();
    sqlx::query("set local lock_timeout = '1s'").execute(&mut *look).await.unwrap();
    let seen: (i32, bool) = sqlx::query_as("select moved, more from queue.release_nodes(0, 1000)").fetch_one(&mut *look).await.unwrap();
    look.commit().await.unwrap();
    assert_eq!(seen, (10, false));
    held.rollback().await.unwrap();
    drop(other);
    assert_eq!(db.count("select count(*) from queue.ready").await, 10);
    assert_eq!(db.count("select count(*) from queue.node_hint").await, 0);
    assert_eq!(db.count("select count(*) from queue.edge").await, 1, "that of which somebody had the lock is left to housekeeping");
    db.finish().await;
}

/// Leases of two running nodes; somebody has the second locked.
#[tokio::test]
async fn a_flow_that_is_cancelled_holds_up_no_verdict() {
    let db = db().await;
    let mut flow = Flow::new("running");
    let (a, b) = (flow.add("a", give("a", [])), flow.add("b", give("b", [])));
    let flow = flow.enqueue(&db.pool).await.unwrap();
    for job in [flow.job(&a).id(), flow.job(&b).id()] {
        run(
            &db,
            &format!(
                "delete from queue.ready where id = {job}; insert into queue.lease (token, worker, ids, attempts, crashes)
            values (gen_random_uuid(), gen_random_uuid(), '{{{job}}}', '{{1}}', '{{0}}')"
            ),
        )
        .await;
    }
    let (mut holder, mut settler) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let mut held = holder.begin().await.unwrap();
    sqlx::query("select from queue.lease where $1 = any (ids) for update").bind(flow.job(&b).id()).execute(&mut *held).await.unwrap();
    let cancelling = operate::cancel_flow(&db.pool, Store::default(), flow.id());
    let settling = async {
        // As often as a settle may come: none waits for the lease of the other.
        for _ in 0..20 {
            let mut tx = settler.begin().await.unwrap();
            sqlx::query("set local lock_timeout = '400ms'").execute(&mut *tx).await.unwrap();
            let free = sqlx::query("select from queue.lease where $1 = any (ids) for update").bind(flow.job(&a).id());
            free.execute(&mut *tx).await.unwrap();
            tx.rollback().await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let (count, ()) = tokio::join!(cancelling, settling);
    assert!(count.unwrap() <= 1, "a lease that is locked at that moment is passed over, as a settle may have the first");
    assert_eq!(operate::cancel_flow(&db.pool, Store::default(), flow.id()).await.unwrap(), 1, "and the second is");
    held.rollback().await.unwrap();
    assert_eq!(operate::cancel_flow(&db.pool, Store::default(), flow.id()).await.unwrap(), 2);
    drop((holder, settler));
    let over = "with gone as (delete from queue.lease returning ids)
        insert into queue.done (id, finished_at, ran_ms, attempts, cancelled) select u.id, now(), 1, 1, true from gone cross join unnest(gone.ids) u (id)";
    run(&db, over).await;
    db.finish().await;
}

#[tokio::test]
async fn a_node_is_no_job_of_before() {
    let db = db().await;
    give("before", []).enqueue(&db.pool).unique("k").await.unwrap();
    let mut flow = Flow::new("adopts");
    flow.add("first", give("first", [])).with(|job| job.unique("k").on_conflict(OnConflict::Replace));
    let error = flow.enqueue(&db.pool).await.unwrap_err().to_string();
    assert!(error.contains("first") && error.contains("uniqueness key"), "{error}");
    let nodes = r#"[{"name": "first", "job_type": "flow_part", "payload": 1, "options": {"unique_key": "k", "on_conflict": "replace"}}]"#;
    let refused = said(&db, nodes).await;
    assert!(refused.contains("uniqueness key"), "{refused}");
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    db.finish().await;
}

/// What `queue.enqueue_flow` says of these nodes.
async fn said(db: &TestDb, nodes: &str) -> String {
    let said = sqlx::query("select queue.enqueue_flow('said', $1::text::jsonb)").bind(nodes).execute(&db.pool).await;
    said.map_or_else(|error| error.to_string(), |_| String::new())
}

#[tokio::test]
async fn what_is_not_understood_is_refused() {
    let db = db().await;
    let after = |rest: &str| format!(r#"[{{"name": "a", "job_type": "t", "payload": 1}}, {{"name": "b", "job_type": "t", {rest}}}]"#);
    for (rest, says) in [
        (r#""payload": 1, "aftr": ["a"]"#, "the key \"aftr\""),
        (r#""payload": 1, "after": ["c"]"#, "waits for \"c\""),
        (r#""payload": 1, "if_dead": "weep""#, "neither hold"),
        (r#""payload": {"x": {"$of": "a", "default": 1}}"#, "something beside it"),
        (r#""payload": {"x": {"$of": 7}}"#, "not in the flow"),
        (r#""jobs": [{"x": {"$of": "a"}}]"#, "no place"),
        (r#""jobs": 7"#, "no array"),
        (r#""jobs": [1], "payload": 1"#, "both jobs and a payload"),
        (r#""jobs": [1], "payload": null, "in_flight": 1"#, ""),
        (r#""payload": 1, "in_flight": 1"#, "is not many jobs"),
        (r#""payload": 1, "in_flight": null"#, ""),
        (r#""jobs": [1], "options": {"expires_in": 5}"#, ""),
    ] {
        let error = said(&db, &after(rest)).await;
        assert!(error.contains(says) && error.is_empty() == says.is_empty(), "{rest}: {error}");
    }
    let mut flow = Flow::new("expires");
    flow.add_all("many", (0..2).map(|_| give("many", []))).with(|job| job.expires_in(Duration::from_secs(1)));
    assert!(flow.enqueue(&db.pool).await.unwrap_err().to_string().contains("does not expire"));
    db.finish().await;
}

#[tokio::test]
async fn the_jobs_of_a_node_that_never_begins_are_cancelled_and_are_not_run_before() {
    let db = db().await;
    let mut flow = Flow::new("never");
    let first = flow.add("first", give("first", []));
    let many = flow.add_all("many", (0..3).map(|_| give("many", []))).each(|job| job.queue("imports")).after(&first);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let many = flow.job(&many).id();
    assert_eq!(db.count("select count(*) from queue.jobs where queue = 'imports'").await, 4, "the node goes where its jobs go");
    let ids: Vec<JobId> = sqlx::query_scalar("select id from queue.parked").fetch_all(&db.pool).await.unwrap();
    assert_eq!((ids.len(), db.count("select count(*) from queue.run_now_all(array(select id from queue.parked))").await), (4, 0));
    // Dead before it began, and discarded.
    run(
        &db,
        &format!(
            "with gone as (delete from queue.parked where id = {many} returning id, lane)
        insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 0, 0, 'no' from gone"
        ),
    )
    .await;
    queue_core::JobRef::from_id(many).discard(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 3);
    assert_eq!(db.count("select (select count(*) from queue.parked) + (select count(*) from queue.gather)").await, 0);
    db.finish().await;
}

/// A consumer is about to let parts run while their node is cancelled.
#[tokio::test]
async fn what_is_let_run_during_a_cancel_is_cancelled() {
    let db = db().await;
    let mut flow = Flow::new("ramp");
    let many = flow.add_all("many", (0..6).map(|_| give("many", []))).in_flight(2);
    let flow = flow.enqueue(&db.pool).await.unwrap();
    let many = flow.job(&many).id();
    run(&db, &format!("update queue.gather set room = 3 where parent = {many}; insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
        select parent, born, name, 0, 0, 0, 0 from queue.gather")).await;
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut consumer = other.begin().await.unwrap();
    let moved: i32 = sqlx::query_scalar("select moved from queue.count_gathers(0, 100)").fetch_one(&mut *consumer).await.unwrap();
    assert_eq!(moved, 3);
    let cancelling = async { queue_core::JobRef::from_id(many).cancel(&db.pool).await.unwrap() };
    let committing = async {
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        tests::eventually("the cancel waits", async || db.count(waits).await > 0).await;
        consumer.commit().await.unwrap();
    };
    tokio::join!(cancelling, committing);
    assert_eq!(db.count("select count(*) from queue.done where cancelled").await, 7);
    assert_eq!(db.count("select (select count(*) from queue.ready) + (select count(*) from queue.parked)").await, 0);
    assert_eq!(db.state(many).await, Some(JobState::Cancelled));
    drop(other);
    db.finish().await;
}
