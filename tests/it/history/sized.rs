//! Tests queries over a month of statistics for 200 pairs of queue and job type, and over the latest counts of ten workers. Measures the
//! number of rows that a query reads.

use std::time::Duration;

use queue_core::{Queue, operate::HistoryRange};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::TestDb;

const HOUR: Duration = Duration::from_hours(1);

/// SQL that writes about 512,000 totals, and the counts that ten workers reported in the last half minute.
const FILL: &str = "
insert into queue.tally_total
select s.step, at, case when q = 0 then '' else 'queue' || (q - 1) / 10 end, case when q = 0 then '' else 'type' || (q - 1) % 10 end,
  1000, 10, 1, 0, 0, 0, 0, 0, 1, 1, 0, repeat('0000000000000007', 12)::numeric, repeat('0000000000000007', 12)::numeric
from (values (10, '1 hour'::interval), (60, '1 day'), (3600, '30 days'), (86400, '30 days')) s (step, kept)
cross join lateral generate_series(date_bin(make_interval(secs => s.step), now() - s.kept, '1970-01-01+00'), now() - interval '40 s',
  make_interval(secs => s.step)) at
cross join generate_series(0, 200) q;
insert into queue.tallied
select date_bin('10 s', now() - n * interval '10 s', '1970-01-01+00'), 'queue' || q / 10, 'type' || q % 10,
  100, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, repeat('0000000000000007', 12)::numeric, repeat('0000000000000007', 12)::numeric
from generate_series(0, 2) n, generate_series(0, 199) q, generate_series(1, 10) w;
analyze queue.tally_total;
analyze queue.tallied";

#[tokio::test]
#[ignore = "deep"]
async fn statistics_of_any_duration_read_few_rows_by_an_index() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    on.execute(FILL).await.unwrap();
    let of = |text: &str| Some(text.to_owned());
    let pasts = [
        ("an hour, together", HistoryRange::default(), 7_000),
        ("an hour, apart", HistoryRange { apart: true, ..HistoryRange::default() }, 25_000),
        ("a day, apart", HistoryRange { last: HOUR * 24, apart: true, ..HistoryRange::default() }, 35_000),
        ("30 days, apart", HistoryRange { last: HOUR * 720, apart: true, ..HistoryRange::default() }, 30_000),
        ("an hour by 10 s", HistoryRange { step: Some(HOUR / 360), ..HistoryRange::default() }, 7_000),
        ("a day by 5 min", HistoryRange { last: HOUR * 24, step: Some(HOUR / 12), ..HistoryRange::default() }, 8_000),
        (
            "a day by 5 min of a queue",
            HistoryRange { last: HOUR * 24, step: Some(HOUR / 12), queue: of("queue3"), ..HistoryRange::default() },
            30_000,
        ),
        ("30 days by an hour", HistoryRange { last: HOUR * 720, step: Some(HOUR), ..HistoryRange::default() }, 8_000),
        (
            "30 days by an hour of a type",
            HistoryRange { last: HOUR * 720, step: Some(HOUR), job_type: of("type3"), ..HistoryRange::default() },
            35_000,
        ),
        ("a day by an hour, apart", HistoryRange { last: HOUR * 24, step: Some(HOUR), apart: true, ..HistoryRange::default() }, 22_000),
    ];
    for (what, past, most) in pasts {
        let rows = Queue::on(&mut on).history(&past).await.unwrap().len();
        // The view shows counts that the server has not published yet. The server publishes only between transactions, so a single
        // transaction makes the difference exact.
        on.execute("begin").await.unwrap();
        let before = read(&mut on).await;
        Queue::on(&mut on).history(&past).await.unwrap();
        let after = read(&mut on).await;
        on.execute("rollback").await.unwrap();
        let (whole, fetched) = (after.0 - before.0, after.1 - before.1);
        assert!(whole == 0 && fetched <= most, "{what}: {whole} tables read whole, {fetched} rows fetched");
        assert!(rows <= 2000, "{what}: {rows} rows");
    }
    db.finish().await;
}

/// Returns the number of full scans of statistics tables, and the number of rows fetched.
async fn read(on: &mut PgConnection) -> (i64, i64) {
    let read = "select sum(seq_scan)::bigint, sum(idx_tup_fetch)::bigint from pg_stat_xact_user_tables where relname in ('tallied', 'tally_total')";
    sqlx::query_as(read).fetch_one(on).await.unwrap()
}
