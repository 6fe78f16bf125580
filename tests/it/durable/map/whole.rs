//! Parts that complete with nothing to say: their leases are settled as wholes, and the parts counted in that transaction.

use queue_core::{Context, Durable, Handler, Job as _, JobResult, JobState, job};
use serde::{Deserialize, Serialize};

use super::{all_is_counted, db, gather};

/// Maps so many, and gives how many completed.
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

/// Says nothing. One that is told so is what a zombie has: while it runs, others have taken all jobs of its lease, and put them off.
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
async fn parts_with_nothing_to_say_are_counted_by_their_leases() {
    let db = db().await;
    let parent = Fanned { parts: 250, loses: false }.enqueue(&db.pool).await.unwrap();
    let worker = db.worker().register::<Fanned>().register::<Quiet>().queue("default", 2).queue("quiet", 20);
    assert_eq!(db.run_while(worker, parent.wait(&db.pool).into_future()).await.unwrap(), 250);
    assert_eq!(db.count("select sum(cardinality(ids))::bigint from queue.done_many").await, 250);
    all_is_counted(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn parts_of_a_lease_that_others_have_are_not_counted_by_who_had_it() {
    let db = db().await;
    let parent = Fanned { parts: 40, loses: true }.enqueue(&db.pool).await.unwrap();
    db.run_while(db.worker().register::<Fanned>().queue("default", 2), db.until(parent.id(), JobState::Parked)).await;
    let quiet = || db.worker().register::<Quiet>().queue("quiet", 20);
    // It has said all that it has to say once it has ended.
    db.run_while(quiet(), async {
        tests::eventually("all others are over", async || {
            db.count("select count(*) from queue.ready").await == 0
                && db.count("select count(*) from queue.lease").await == 0
                && db.count("select count(*) from queue.scheduled").await > 0
        })
        .await;
    })
    .await;
    let put_off = db.count("select count(*) from queue.scheduled").await;
    // A statement of the worker that has stopped may still have the hints.
    tests::eventually("all hints are consumed", async || {
        db.run("select queue.tell_ends(0, 1000)").await;
        db.count("select count(*) from queue.end_hint").await == 0
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.gather_part").await, put_off, "each that is not over is not counted");
    db.run("update queue.scheduled set run_at = now()").await;
    // Those that lost it before begin at their first attempt again, and nobody has it from them.
    db.run("update queue.job set payload = '{\"loses\": false}' where id in (select id from queue.scheduled)").await;
    let both = db.worker().register::<Fanned>().register::<Quiet>().queue("default", 2).queue("quiet", 20);
    assert_eq!(db.run_while(both, parent.wait(&db.pool).into_future()).await.unwrap(), 40);
    assert_eq!(gather(&db, parent.id()).await.completed, 40);
    all_is_counted(&db).await;
    db.finish().await;
}
