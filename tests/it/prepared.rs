//! Tests two-phase commit: a transaction that enqueues can be prepared if it has switched notifications off.

use std::time::Duration;

use queue_core::{Job as _, JobState, Queue};
use queue_worker::Worker;
use sqlx::{Connection as _, PgConnection};
use tests::{Do, Sql as _, eventually, server::TestServer};
use tokio::sync::oneshot;

#[tokio::test]
#[ignore = "deep"]
async fn a_transaction_without_notifications_can_be_prepared_while_a_worker_sleeps() {
    let server = TestServer::start_with(&["fsync=off", "max_prepared_transactions=4"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    let mut on = PgConnection::connect(&server.url("app")).await.unwrap();
    Queue::on(&mut on).set_capacity("bounded", Some(10)).await.unwrap();
    let worker = Worker::new(db.pool.clone()).register::<Do>().queue("default", 4).queue("bounded", 1);
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tokio::spawn(worker.poll_interval(Duration::from_millis(100)).run(async move { stopped.await.unwrap_or_default() }));
    let sleeps = async || eventually("the worker sleeps", async || db.count("select count(*) from queue.idle").await.unwrap() > 0).await;

    sleeps().await;
    on.run("begin").await;
    Do::ok().enqueue(&mut on).await.unwrap();
    let refused = sqlx::raw_sql("prepare transaction 'two'").execute(&mut on).await.unwrap_err();
    assert!(refused.to_string().contains("NOTIFY"), "{refused}");

    for kind in ["plain", "later", "keyed", "unique", "many", "bounded"] {
        sleeps().await;
        on.run("begin; set local queue_transaction.notify = off").await;
        let job = Do::ok().enqueue(&mut on);
        let id = match kind {
            "later" => job.after(Duration::from_millis(10)).await,
            "keyed" => job.key("key").await,
            "unique" => job.unique("key").await,
            "bounded" => job.queue("bounded").await,
            _ => job.await,
        };
        let id = id.unwrap().id();
        if kind == "many" {
            Do::enqueue_all((0..3).map(|_| Do::ok()), &mut on).await.unwrap();
        }
        on.run("prepare transaction 'two'").await;
        on.run("commit prepared 'two'").await;
        let state = format!("select count(*) from queue.jobs where id = {id} and state = '{}'", JobState::Completed);
        eventually(&format!("{kind} completes"), async || db.count(&state).await.unwrap() == 1).await;
    }
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    server.stop().unwrap();
}
