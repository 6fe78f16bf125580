//! Tests the SQL statements that journal steps. A step is journaled once, and only under the job's lease. Other jobs are not affected.

use queue_core::{Job as _, JobId};
use sqlx::{Executor as _, PgConnection};
use tests::{Do, Sql as _, TestDb};
use uuid::Uuid;

type Entry<'a> = (Uuid, JobId, &'a str, Option<&'a str>);

const TOGETHER: &str = include_str!("../../../queue-worker/sql/journal.sql");
const FRESH: &str = include_str!("../../../queue-worker/sql/journal_fresh.sql");

const ALONE: &str = include_str!("../../../queue-worker/sql/journal_one.sql");

/// Journals entries with `statement`, one entry per call if the statement takes only one. Returns the names of the accepted entries.
async fn try_journal(db: &TestDb, statement: &'static str, entries: &[Entry<'_>]) -> sqlx::Result<Vec<String>> {
    let mut names = Vec::new();
    if statement == ALONE {
        let mut on = db.pool.acquire().await?;
        for entry in entries {
            names.extend(journal_one(&mut on, *entry).await?.map(|_| entry.2.to_owned()));
        }
        return Ok(names);
    }
    let statement = sqlx::query_as(statement)
        .bind(entries.iter().map(|entry| entry.0).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.1).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.2).collect::<Vec<_>>())
        .bind(entries.iter().map(|_| 1_i16).collect::<Vec<_>>())
        .bind(entries.iter().map(|_| 5).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.3.is_none().then_some(1500.0)).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.3).collect::<Vec<_>>());
    let rows: Vec<(Uuid, JobId, String)> = statement.fetch_all(&db.pool).await?;
    names.extend(rows.into_iter().map(|(.., name)| name));
    names.sort();
    Ok(names)
}

async fn journal(db: &TestDb, entries: &[Entry<'_>]) -> Vec<String> {
    try_journal(db, TOGETHER, entries).await.unwrap()
}

/// Journals a single entry. Returns the transaction id if the entry was accepted.
async fn journal_one(connection: &mut PgConnection, (token, job, name, output): Entry<'_>) -> sqlx::Result<Option<String>> {
    let statement = sqlx::query_scalar(ALONE).bind(token).bind(job).bind(name).bind(1_i16).bind(5);
    statement.bind(output.is_none().then_some(1500.0)).bind(output).fetch_optional(connection).await
}

async fn job(db: &TestDb) -> JobId {
    Do::ok().enqueue(&db.pool).await.unwrap().id()
}

/// Creates a lease that contains the job.
async fn lease(db: &TestDb, job: JobId) -> Uuid {
    let token = Uuid::new_v4();
    let statement = "with gone as (delete from queue.ready where id = $2 returning lane)
        insert into queue.lease (token, worker, claimed_at, lane, ids, attempts, crashes)
        select $1, gen_random_uuid(), now(), lane, array[$2], array[1::smallint], array[0::smallint] from gone";
    sqlx::query(statement).bind(token).bind(job).execute(&db.pool).await.unwrap();
    token
}

async fn forget(db: &TestDb, job: JobId) {
    for statement in ["delete from queue.lease where $1 = any (ids)", "delete from queue.job where id = $1"] {
        sqlx::query(statement).bind(job).execute(&db.pool).await.unwrap();
    }
}

/// Returns the job's steps as `name=output`. A sleep shows its duration in tenths of a second instead.
async fn steps(db: &TestDb, job: JobId) -> Vec<String> {
    let shown = "select name || '=' || coalesce(output::text, (extract(epoch from until - at) * 10)::int::text)
        from queue.step where id = $1 order by name";
    sqlx::query_scalar(shown).bind(job).fetch_all(&db.pool).await.unwrap()
}

/// Tests the statements for several steps, for new steps, and for one step.
#[tokio::test]
async fn a_step_counts_only_under_the_lease_that_has_its_job_and_once() {
    for statement in [TOGETHER, FRESH, ALONE] {
        let db = TestDb::new().await;
        let (ours, theirs) = (job(&db).await, job(&db).await);
        let (token, other) = (lease(&db, ours).await, lease(&db, theirs).await);
        let (mine, alien, lost) = ((token, ours, "a", Some("1")), (token, theirs, "b", Some("2")), (Uuid::new_v4(), ours, "c", Some("3")));
        assert_eq!(try_journal(&db, statement, &[mine, alien, lost, (token, ours, "z", None)]).await.unwrap(), ["a", "z"]);
        assert_eq!((steps(&db, ours).await, steps(&db, theirs).await), (vec!["a=1".to_owned(), "z=15".to_owned()], vec![]));
        // Send one entry again together with a new entry, as if the reply to the first call had been lost.
        match try_journal(&db, statement, &[(token, ours, "a", Some("9")), (other, theirs, "b", Some("2"))]).await {
            Ok(names) => assert!(statement == TOGETHER && names == ["a", "b"], "{statement}: {names:?}"),
            Err(again) => assert!(statement != TOGETHER && again.as_database_error().unwrap().is_unique_violation(), "{again}"),
        }
        assert_eq!(steps(&db, ours).await, ["a=1", "z=15"]);
        assert_eq!(steps(&db, theirs).await.len(), usize::from(statement == TOGETHER));
        db.run(&format!("delete from queue.lease where token = '{token}'")).await;
        assert_eq!(try_journal(&db, statement, &[(token, ours, "d", Some("4"))]).await.unwrap(), [""; 0], "a zombie writes nothing");
        forget(&db, ours).await;
        forget(&db, theirs).await;
        db.finish().await;
    }
}

#[tokio::test]
async fn a_step_and_a_verdict_on_its_lease_do_not_interleave() {
    let db = TestDb::new().await;
    for statement in [ALONE, FRESH, TOGETHER] {
        neither_comes_between(&db, statement).await;
    }
    db.finish().await;
}

async fn neither_comes_between(db: &TestDb, statement: &'static str) {
    let ours = job(db).await;
    let token = lease(db, ours).await;
    let mut writing = db.pool.begin().await.unwrap();
    if statement == ALONE {
        assert!(journal_one(&mut writing, (token, ours, "a", Some("1"))).await.unwrap().is_some());
    } else {
        let statement =
            sqlx::query(statement).bind([token]).bind([ours]).bind(["a"]).bind([1_i16]).bind([5]).bind([None::<f64>]).bind(["1"]);
        assert_eq!(writing.execute(statement).await.unwrap().rows_affected(), 1);
    }
    // While the step is uncommitted, no other session can take the lease away.
    let mut other = db.pool.acquire().await.unwrap();
    other.run("set lock_timeout = '100ms'").await;
    let taken = sqlx::query("delete from queue.lease where token = $1").bind(token).execute(&mut *other).await;
    assert!(taken.is_err(), "the lease is locked until the commit");
    writing.commit().await.unwrap();
    sqlx::query("delete from queue.lease where token = $1").bind(token).execute(&mut *other).await.unwrap();
    other.run("reset lock_timeout").await;
    drop(other);
    forget(db, ours).await;
}

#[tokio::test]
async fn a_commit_without_a_reply_is_resolved_by_its_transaction_id() {
    let db = TestDb::new().await;
    let ours = job(&db).await;
    let token = lease(&db, ours).await;
    let number = |name: &'static str, keep: bool| {
        let pool = db.pool.clone();
        async move {
            let mut tx = pool.begin().await.unwrap();
            let number = journal_one(&mut tx, (token, ours, name, Some("1"))).await.unwrap().unwrap();
            if keep {
                tx.commit().await.unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
            number
        }
    };
    let resolve = |number: String, name: &'static str, attempt: i16| {
        let statement = sqlx::query_scalar::<_, Option<bool>>(include_str!("../../../queue-worker/sql/step_written.sql"));
        statement.bind(ours).bind(name).bind(attempt).bind(number).fetch_one(&db.pool)
    };
    let (kept, undone) = (number("kept", true).await, number("undone", false).await);
    assert_eq!(resolve(kept.clone(), "kept", 1).await.unwrap(), Some(true));
    assert_eq!(resolve(undone, "undone", 1).await.unwrap(), Some(false));
    assert_eq!(resolve(kept.clone(), "undone", 1).await.unwrap(), None, "a number that another has got since");
    assert_eq!(resolve(kept, "kept", 2).await.unwrap(), None);
    let mut open = db.pool.begin().await.unwrap();
    let number: String = open.one("select pg_current_xact_id()::text").await;
    assert_eq!(resolve(number, "kept", 1).await.unwrap(), None, "it is under way");
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn readers_see_the_steps_of_an_existing_job_in_order() {
    let db = TestDb::new().await;
    let (ours, theirs) = (job(&db).await, job(&db).await);
    let (token, other) = (lease(&db, ours).await, lease(&db, theirs).await);
    for name in ["b", "a"] {
        journal(&db, &[(token, ours, name, Some("\"text\""))]).await;
    }
    journal(&db, &[(other, theirs, "c", None)]).await;
    let names = |job: JobId| sqlx::query_scalar::<_, String>("select name from queue.steps($1)").bind(job).fetch_all(&db.pool);
    assert_eq!(names(ours).await.unwrap(), ["b", "a"]);
    forget(&db, ours).await;
    assert_eq!(names(ours).await.unwrap(), [""; 0]);
    db.finish().await;
}
