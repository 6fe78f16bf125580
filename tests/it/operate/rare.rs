//! Tests how far a search for rare jobs scans.

use std::time::Duration;

use queue_core::{
    JobId, Queue,
    operate::{Filter, Patience},
};
use tests::TestDb;

/// SQL that fills a store with 24,000 completed jobs. Three jobs have the type `rare`: the two oldest jobs, and one job that is older
/// than 12,000 others. A single page scans fewer than 12,000 jobs.
pub(crate) const FILL: &str = "
  insert into queue.lane (lane, queue, job_type, priority, solo)
    select queue.lane_id('default', t, 100, false), 'default', t, 100, false from unnest('{often,rare}'::text[]) t;
  create temporary table made as
    select n, queue.id_at(now() - interval '2 minutes') + n * 1048576::bigint as id,
      queue.lane_id('default', case when n in (1, 2, 12000) then 'rare' else 'often' end, 100, false) as lane
    from generate_series(1, 24000) n;
  insert into queue.job (id, lane, max_attempts, payload) select id, lane, 3, '{}' from made;
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, output)
    select id, now(), 1, 1, false, '1' from made;
  drop table made;
  analyze";

#[tokio::test]
async fn a_list_without_matches_continues_and_a_short_page_reports_that_there_may_be_more() {
    let db = TestDb::new().await;
    sqlx::raw_sql(FILL).execute(&db.pool).await.unwrap();
    let list = async |some: Duration, none: Duration, before: Option<JobId>| {
        let filter = Filter { before, ..Filter::default().job_type("rare") };
        let page = Queue::new(&db.pool).jobs().matching(&filter).list_patiently(Patience { some, none }).await.unwrap();
        (page.jobs.len(), page.next)
    };
    let (never, ever) = (Duration::ZERO, Duration::from_mins(10));
    let (found, next) = list(never, never, None).await;
    assert!(found == 0 && next.is_some(), "one page of the history has none, and may have more");
    let (found, next) = list(never, ever, None).await;
    assert!(found == 1 && next.is_some(), "until something is found: {found}");
    assert_eq!(list(never, ever, next).await, (2, None), "and from there on");
    assert_eq!(list(ever, ever, None).await, (3, None));
    assert_eq!(list(ever, never, None).await.0, 0, "each has its own bound");
    db.finish().await;
}
