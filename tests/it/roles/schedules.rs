//! Tests schedules with roles: an operator creates them, a worker declares and fires them, and a reader sees them. A producer has no
//! access.

use std::time::Duration;

use queue_core::{
    JobState, Queue, Store,
    schedule::{Overlap, Schedule},
};
use queue_worker::Worker;
use tests::{Act, Do, eventually};

use super::{RoledStore, work::cli};

const STORE: fn() -> Store = Store::default;

#[tokio::test]
#[ignore = "deep"]
async fn an_operator_creates_a_schedule_a_worker_fires_it_and_a_reader_sees_it_without_its_payload() {
    let store = RoledStore::new().await;
    let (ops, viewer) = (store.pool("ops"), store.pool("viewer"));
    let job = || Do { act: Act::Ok("payload-secret".into()) };
    let second = Schedule::every(Duration::from_secs(1)).overlap(Overlap::Allow).job(&job());
    Queue::new(&ops).store(STORE()).schedule("second").create(&second).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let declaring = Worker::new(store.pool("runner")).register::<Do>().schedule("yearly", Schedule::cron("0 1 1 1 *").job(&job()));
    let worker = tokio::spawn(declaring.run(async { drop(stopped.await) }));
    let fired = async || {
        Queue::new(&viewer).store(STORE()).schedule("second").ticks(9).await.unwrap().into_iter().filter(|fire| fire.job.is_some()).count()
    };
    eventually("it fires", async || fired().await >= 2).await;
    let declared = async || {
        Queue::new(&viewer).store(STORE()).schedules().await.unwrap().into_iter().any(|it| it.name == "yearly" && it.next_at.is_some())
    };
    eventually("what the worker declares is in force", declared).await;

    Queue::new(&ops).store(STORE()).schedule("yearly").skip_next().await.unwrap();
    Queue::new(&ops).store(STORE()).schedule("yearly").pause().await.unwrap();
    let now = Queue::new(&ops).store(STORE()).schedule("yearly").run_now().await.unwrap();
    let completed = async || queue_core::JobRef::from_id(now).status(&ops).await.unwrap().state == JobState::Completed;
    eventually("its job now is completed", completed).await;
    Queue::new(&ops).store(STORE()).schedule("yearly").resume().await.unwrap();

    let (code, output) = cli(&store, "viewer", &["cron", "show", "second"]);
    assert!(code == Some(0) && output.contains("enqueued") && !output.contains("secret"), "{output}");
    for user in ["web", "mailer", "runner", "viewer", "nobody_else"] {
        store.is_denied(user, "select queue.schedule('mine', 'do', '{}', '{\"every\": 60}')").await;
        for act in ["unschedule", "pause_schedule", "resume_schedule", "skip_schedule", "run_schedule"] {
            store.is_denied(user, &format!("select queue.{act}('second')")).await;
        }
        if user != "runner" {
            store.is_denied(user, "select payload from queue.schedule").await;
            store.is_denied(user, "select from queue.fire_ticks('second', 1, null, null, 'enqueue', null, null)").await;
        }
    }
    store.is_denied("web", "select from queue.fire").await;
    store.is_denied("ops", "delete from queue.schedule").await;
    store.is_denied("runner", "insert into queue.fire values ('second', now(), now(), null, 'enqueued', null)").await;
    Queue::new(&ops).store(STORE()).schedule("second").delete().await.unwrap();
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    store.server.stop().unwrap();
}
