//! Who tells of several children, and who forgets them or asks of them anew meanwhile, lock them in one order: neither waits for the other in a circle.

use queue_core::JobId;
use sqlx::Connection as _;
use tests::{Sql as _, TestDb, complete};
use uuid::Uuid;

use super::{super::signals::races::leased, db};

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
        let child: JobId = db.one("select queue.enqueue('child', '{}')").await;
        complete(&mut db.pool.acquire().await.unwrap(), child, "null").await;
        children.push(child);
    }
    // They lie in the order of their parents, whichever way they are walked.
    for (parent, child) in [(parents[0], children[2]), (parents[1], children[0]), (parents[2], children[1])] {
        db.run(&format!("insert into queue.child (parent, name, id) values ({parent}, 'a', {child})")).await;
    }
    Family { tokens, parents, children }
}

async fn until_blocked(db: &TestDb, count: i64) {
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
    db.until_count(waits, count).await;
}

/// Tells of all children, and does this of the first two parents in the middle of it; returns what either failed with.
async fn in_the_middle(db: &TestDb, family: &Family, statement: String) -> Vec<String> {
    let (mut holder, mut teller, mut other) = (db.connect().await, db.connect().await, db.connect().await);
    let mut held = holder.begin().await.unwrap();
    // That of the last parent, which is told of between the two others.
    held.run(&format!("select from queue.child where id = {} for update", family.children[1])).await;
    let children = family.children.clone();
    let telling = tokio::spawn(async move { sqlx::query("select queue.tell_parents($1)").bind(children).execute(&mut teller).await });
    until_blocked(db, 1).await;
    let doing = tokio::spawn(async move { sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut other).await });
    until_blocked(db, 2).await;
    held.commit().await.unwrap();
    let ended = [telling.await.unwrap(), doing.await.unwrap()];
    ended.into_iter().filter_map(|ended| ended.err().map(|error| error.to_string())).collect()
}

async fn forget(db: &TestDb) {
    let all = "delete from queue.lease; delete from queue.ready; delete from queue.dead; delete from queue.done; delete from queue.child;
        delete from queue.signal_hint; delete from queue.job";
    db.run(all).await;
}

/// In the place of the lease.
const DEAD: &str = "with gone as (delete from queue.lease returning ids[1] as id, lane)
    insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'by hand' from gone";
const COMPLETED: &str = "with gone as (delete from queue.lease returning ids[1] as id)
    insert into queue.done (id, finished_at, ran_ms, attempts) select id, now(), 1, 1 from gone";

/// What is done of the first parents: it begins them anew, brings them back, or discards them.
#[tokio::test]
async fn what_is_done_of_parents_in_the_middle_of_a_telling_is_no_deadlock_but_without_one_order() {
    let unlocked = "create or replace function queue.lock_children(parents bigint[]) returns void language plpgsql as $$ begin end $$";
    // A parent whose children's names stand in another order than the children.
    let two = "update queue.child set parent = {0}, name = 'z' where id = {3}";
    let restart =
        "select queue.restart(array['{4}', '{5}']::uuid[], array[{0}, {1}]::bigint[], array[1, 1], array['durable_plan', 'durable_plan'],
        array['{\"parts\": []}', '{\"parts\": []}'])";
    // How many children are told of and left: that of the last parent, or all.
    for (before, statement, left) in [
        ("select 1", restart, Some(1)),
        (DEAD, "select queue.requeue_all(array[{0}, {1}]::bigint[])", Some(3)),
        (DEAD, "select queue.discard_all(array[{0}, {1}]::bigint[])", Some(1)),
        (&[COMPLETED, two].join(";"), "select queue.requeue({0})", Some(1)),
        (unlocked, restart, None),
    ] {
        let db = db().await;
        let family = family(&db).await;
        let names = |text: &str| {
            let ids = [family.parents[0], family.parents[1], family.parents[2], family.children[0]].map(|id| id.to_string());
            let text = (0..4).fold(text.to_owned(), |text, n| text.replace(&format!("{{{n}}}"), &ids[n]));
            text.replace("{4}", &family.tokens[0].to_string()).replace("{5}", &family.tokens[1].to_string())
        };
        db.run(&names(before)).await;
        let failed = in_the_middle(&db, &family, names(statement)).await;
        if let Some(left) = left {
            assert_eq!(failed, [""; 0], "{statement}");
            assert_eq!(db.count("select count(*) from queue.child where state = 'completed'").await, left, "{statement}");
        } else {
            assert!(failed.len() == 1 && failed[0].contains("deadlock"), "this would see one: {failed:?}");
        }
        forget(&db).await;
        db.finish().await;
    }
}
