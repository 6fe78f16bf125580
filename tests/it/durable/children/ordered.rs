//! Who tells of several children, and who forgets them or asks of them anew meanwhile, lock them in one order: neither waits for the other in a circle.

use queue_core::JobId;
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually};
use uuid::Uuid;

use super::{super::signals::races::leased, db, run};

/// Parents whose children stand in another order than their own.
struct Family {
    tokens: Vec<Uuid>,
    parents: Vec<JobId>,
    /// Of the first parent, of the last, of the second.
    children: Vec<JobId>,
}

/// Three parents, each with one child; all children are over, and nobody has told of them.
async fn family(db: &TestDb) -> Family {
    let (mut parents, mut tokens, mut children) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let (job, token) = leased(db).await;
        parents.push(job.id());
        tokens.push(token);
    }
    for _ in 0..3 {
        let child: JobId = sqlx::query_scalar("select queue.enqueue('child', '{}')").fetch_one(&db.pool).await.unwrap();
        let over = format!(
            "delete from queue.ready where id = {child};
            insert into queue.done (id, finished_at, ran_ms, attempts) values ({child}, now(), 1, 1)"
        );
        run(db, &over).await;
        children.push(child);
    }
    // They lie in the order of their parents, whichever way they are walked.
    for (parent, child) in [(parents[0], children[2]), (parents[1], children[0]), (parents[2], children[1])] {
        run(db, &format!("insert into queue.child (parent, name, id) values ({parent}, 'a', {child})")).await;
    }
    Family { tokens, parents, children }
}

async fn until_blocked(db: &TestDb, count: i64) {
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
    eventually("it waits", async || db.count(waits).await == count).await;
}

/// Tells of all children, and does this of the first two parents in the middle of it; returns what either failed with.
async fn in_the_middle(db: &TestDb, family: &Family, statement: String) -> Vec<String> {
    let (mut holder, mut teller, mut other) = (connect(db).await, connect(db).await, connect(db).await);
    let mut held = holder.begin().await.unwrap();
    // That of the last parent, which is told of between the two others.
    sqlx::query("select from queue.child where id = $1 for update").bind(family.children[1]).execute(&mut *held).await.unwrap();
    let children = family.children.clone();
    let telling = tokio::spawn(async move { sqlx::query("select queue.tell_parents($1)").bind(children).execute(&mut teller).await });
    until_blocked(db, 1).await;
    let doing = tokio::spawn(async move { sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut other).await });
    until_blocked(db, 2).await;
    held.commit().await.unwrap();
    let ended = [telling.await.unwrap(), doing.await.unwrap()];
    ended.into_iter().filter_map(|ended| ended.err().map(|error| error.to_string())).collect()
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn forget(db: &TestDb) {
    let all = "delete from queue.lease; delete from queue.ready; delete from queue.dead; delete from queue.done; delete from queue.child;
        delete from queue.signal_hint; delete from queue.job";
    run(db, all).await;
}

/// In the place of the lease.
const DEAD: &str = "with gone as (delete from queue.lease returning ids[1] as id, lane)
    insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'by hand' from gone";
const COMPLETED: &str = "with gone as (delete from queue.lease returning ids[1] as id)
    insert into queue.done (id, finished_at, ran_ms, attempts) select id, now(), 1, 1 from gone";

#[tokio::test]
async fn a_restart_in_the_middle_of_a_telling_is_no_deadlock() {
    let db = db().await;
    let family = family(&db).await;
    assert_eq!(in_the_middle(&db, &family, restart(&family)).await, [""; 0]);
    assert_eq!(db.count("select count(*) from queue.child where state = 'completed'").await, 1, "that of the last parent");
    forget(&db).await;
    db.finish().await;
}

/// The test would see one.
#[tokio::test]
async fn without_one_order_it_is_a_deadlock() {
    let db = db().await;
    let unlocked = "create or replace function queue.lock_children(parents bigint[]) returns void language plpgsql as $$ begin end $$";
    run(&db, unlocked).await;
    let family = family(&db).await;
    let failed = in_the_middle(&db, &family, restart(&family)).await;
    assert!(failed.len() == 1 && failed[0].contains("deadlock"), "{failed:?}");
    forget(&db).await;
    db.finish().await;
}

/// Of the first two parents.
fn restart(Family { tokens, parents, .. }: &Family) -> String {
    format!(
        "select queue.restart(array['{}', '{}']::uuid[], array[{}, {}]::bigint[], array[1, 1], array['durable_plan', 'durable_plan'],
            array['{{\"parts\": []}}', '{{\"parts\": []}}'])",
        tokens[0], tokens[1], parents[0], parents[1]
    )
}

#[tokio::test]
async fn a_requeue_or_a_discard_of_parents_in_the_middle_of_a_telling_is_no_deadlock() {
    let db = db().await;
    for (act, left) in [("requeue_all", 3), ("discard_all", 1)] {
        let family = family(&db).await;
        run(&db, DEAD).await;
        let statement = format!("select queue.{act}(array[{}, {}]::bigint[])", family.parents[0], family.parents[1]);
        assert_eq!(in_the_middle(&db, &family, statement).await, [""; 0], "{act}");
        assert_eq!(db.count("select count(*) from queue.child where state = 'completed'").await, left, "{act}");
        forget(&db).await;
    }
    db.finish().await;
}

/// A parent whose children's names stand in another order than the children.
#[tokio::test]
async fn a_parent_that_is_brought_back_in_the_middle_of_a_telling_is_no_deadlock() {
    let db = db().await;
    let family = family(&db).await;
    run(&db, COMPLETED).await;
    let (parent, children) = (family.parents[0], &family.children);
    run(&db, &format!("update queue.child set parent = {parent}, name = 'z' where id = {}", children[0])).await;
    assert_eq!(in_the_middle(&db, &family, format!("select queue.requeue({parent})")).await, [""; 0]);
    assert_eq!(db.count("select count(*) from queue.child").await, 1, "that of the last parent");
    forget(&db).await;
    db.finish().await;
}
