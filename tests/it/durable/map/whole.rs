//! Tests mapped jobs without an output. Their leases are settled as a whole, and the same transaction adds the hints by which the jobs are
//! counted.

use queue_core::{Context, Handler, Job as _, JobResult, JobState, durable::Durable, job};
use serde::{Deserialize, Serialize};

use super::{all_is_counted, db, gather};

/// Parent job that maps `parts` jobs and returns the number of completed jobs.
#[job(name = "fanned", durable, output = u64)]
#[derive(Serialize, Deserialize)]
struct Fanned {
    parts: u32,
    loses: bool,
}

impl Handler for Fanned {
    async fn run(self, cx: &Durable) -> JobResult<u64> {
        let Self { parts, loses } = self;
        let parts = cx.map("quiet", (0..parts).map(move |number| Quiet { loses: loses && number == 0 })).queue("quiet").await?;
        Ok(parts.join().await?.completed)
    }
}

/// Mapped job without an output. If `loses` is true, the first attempt becomes a zombie: while it is running, another session takes all
/// jobs of its lease and reschedules them.
#[job(name = "quiet")]
#[derive(Serialize, Deserialize)]
struct Quiet {
    loses: bool,
}

impl Handler for Quiet {
    async fn run(self, cx: &Context) -> JobResult {
        let taken = "with gone as (delete from queue.lease where $1 = any (ids) returning ids)
            insert into queue.scheduled (run_at, id, lane, attempts, crashes)
            select now() + interval '1 hour', j.id, j.lane, 0, 0 from gone g join queue.job j on j.id = any (g.ids)";
        if self.loses && cx.attempt() == 1 {
            sqlx::query(taken).bind(cx.id()).execute(cx.pool()).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn mapped_jobs_without_an_output_are_counted_by_their_leases() {
    let db = db().await;
    let parent = Fanned { parts: 250, loses: false }.enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Fanned>().register::<Quiet>().queue("default", 2).queue("quiet", 20);
    assert_eq!(db.run_while(worker, parent.wait(&db.queue()).into_future()).await.unwrap(), 250);
    assert_eq!(db.count("select sum(cardinality(ids))::bigint from queue.done_many").await, 250);
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn mapped_jobs_of_a_lost_lease_are_not_counted_by_its_old_holder() {
    let db = db().await;
    let parent = Fanned { parts: 40, loses: true }.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Fanned>().queue("default", 2), db.until(parent.id(), JobState::Parked)).await;
    let quiet = || db.worker().register::<Quiet>().queue("quiet", 20);
    // Run a worker until the jobs that kept their lease have finished. Once the worker has stopped, all its verdicts are written.
    db.run_while(quiet(), async {
        tests::eventually("all others have finished", async || {
            db.count("select count(*) from queue.ready").await == 0
                && db.count("select count(*) from queue.lease").await == 0
                && db.count("select count(*) from queue.scheduled").await > 0
        })
        .await;
    })
    .await;
    let put_off = db.count("select count(*) from queue.scheduled").await;
    // A statement of the stopped worker may still be locking the hints.
    tests::eventually("all hints are consumed", async || {
        db.run("select queue.consume_end_hints(0, 1000)").await;
        db.count("select count(*) from queue.end_hint").await == 0
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.gather_part").await, put_off, "unfinished ones are not counted");
    db.run("update queue.scheduled set run_at = now()").await;
    // Jobs that lost their lease run their first attempt again. This time no session takes the lease.
    db.run("update queue.job set payload = '{\"loses\": false}' where id in (select id from queue.scheduled)").await;
    let both = db.worker().register::<Fanned>().register::<Quiet>().queue("default", 2).queue("quiet", 20);
    assert_eq!(db.run_while(both, parent.wait(&db.queue()).into_future()).await.unwrap(), 40);
    assert_eq!(gather(&db, parent.id()).await.completed, 40);
    all_is_counted(&db).await;
    db.finish().await;
}
