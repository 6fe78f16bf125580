//! Rates of each key, on connections of our own: what is counted, when, and what that costs.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{
    key_claims::{claim, claim_within, fill},
    key_costs::buffers,
    statements::{run, with},
};

#[tokio::test]
async fn no_window_of_any_key_has_more_starts_than_its_rate_nor_a_short_one_more_than_its_burst() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 14].into_iter().chain(["b"; 14]).chain(["c"; 1])).await;
    run(&mut on, "select queue.set_limit('type:t', null, 6, '600 ms', 2, keyed => true)").await;
    let (mut taken, mut claims, began) = (0, 0, std::time::Instant::now());
    while taken < 29 {
        let said = claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
        claims += 1;
        assert!(said.of.values().all(|count| *count <= 2), "{said:?}");
        taken += said.ids.len();
        if taken < 29 {
            assert_eq!((said.closed.as_deref(), said.within_ms.is_none_or(|ms| ms == 10)), (Some("lines"), true), "{said:?}");
            tokio::time::sleep(Duration::from_secs_f64(said.wait_ms.unwrap().max(0.0) / 1000.0) + Duration::from_millis(1)).await;
        }
    }
    eprintln!("14 starts of each of two keys of 6 in 600 ms took {:?}, in {claims} claims", began.elapsed());
    for (range, most) in [(599, 6), (199, 2)] {
        let over = format!(
            "select max(n)::bigint from (select sum(n) over (partition by line order by at_ms range between {range} preceding and current row) as n from queue.rate) w"
        );
        assert_eq!(sqlx::query_scalar::<_, i64>(AssertSqlSafe(over)).fetch_one(&mut on).await.unwrap(), most);
    }
    assert_eq!(db.count("select count(distinct line) from queue.rate").await, 3);
    db.finish().await;
}

#[tokio::test]
async fn what_begins_later_than_others_is_counted_once_and_so_are_those() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "default", ["a"; 20].into_iter().chain(["b"; 20])).await;
    run(&mut on, "select queue.set_limit('type:t', null, 8, '1 h', 6, keyed => true)").await;
    let lanes = &[("default", true)];
    for slack in [20_000, 0, 10_000, 0, 40_000] {
        let some = claim_within(&mut on, (worker, lanes, 0), &["type:t"], 2, &[], (slack, None)).await.unwrap();
        assert_eq!(some.ids.len(), 2);
    }
    let wrong = "select count(*) from (select total, sum(n) over (partition by line order by at_ms) as counted from queue.rate) r
        where total <> counted";
    assert_eq!(db.count(wrong).await, 0);
    claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    let of_each = "select count(*) from (select sum(n) as n from queue.rate group by line) r where n = 6";
    assert_eq!(db.count(of_each).await, 2, "no more than the burst of any");
    run(&mut on, "select queue.set_limit('type:t', null, 8, '1 h', keyed => true)").await;
    claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap();
    assert_eq!(db.count(&of_each.replace('6', "8")).await, 2);
    // What is over is forgotten, and what stays counts as much as before.
    run(&mut on, "delete from queue.rate r where at_ms = (select min(at_ms) from queue.rate o where o.line = r.line)").await;
    let gone = 16 - db.count("select sum(n)::bigint from queue.rate").await;
    assert_eq!(claim(&mut on, worker, &["type:t"], 50, &[]).await.unwrap().ids.len() as i64, gone);
    db.finish().await;
}

#[tokio::test]
async fn what_a_key_has_begun_costs_no_more_however_often_it_was() {
    let (db, mut on, worker) = with(0).await;
    run(&mut on, "select queue.set_limit('type:t', null, 10000, '1 h', 9000, keyed => true)").await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    fill(&mut on, "default", keys.iter().map(String::as_str)).await;
    buffers(&mut on, worker).await;
    let few = buffers(&mut on, worker).await;
    let begun = "insert into queue.rate (gate, line, at_ms, n, total)
        select queue.hash('type:t'), line, queue.clock_ms() - 1000 + n, 1, n from queue.ready cross join generate_series(1, 1000) n";
    run(&mut on, begun).await;
    run(&mut on, "analyze queue.rate").await;
    buffers(&mut on, worker).await;
    let many = buffers(&mut on, worker).await;
    eprintln!("a claim of ten keys touches {few} buffers before their first starts, {many} after a thousand of each");
    assert!(many <= 2 * few, "{few} buffers, and then {many}");
    db.finish().await;
}

#[tokio::test]
async fn starts_of_all_count_as_of_no_key_once_the_rate_is_of_each() {
    let (db, mut on, worker) = with(12).await;
    run(&mut on, "select queue.set_limit('type:t', null, 10, '1 h')").await;
    for most in [3, 4] {
        let some = super::statements::claim(&mut on, worker, &["type:t"], &["default"], most, &[]).await.unwrap();
        assert_eq!(some.ids.len(), usize::try_from(most).unwrap());
    }
    run(&mut on, "select queue.set_limit('type:t', null, 10, '1 h', keyed => true)").await;
    tests::lines::line_up(&mut on, 100).await.unwrap();
    let said = claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!((said.ids.len(), said.closed.as_deref()), (3, Some("lines")), "seven of ten began before");
    let next = claim(&mut on, worker, &["type:t"], 9, &[]).await.unwrap();
    assert_eq!((next.ids.len(), next.closed.as_deref()), (0, Some("lines")));
    db.finish().await;
}
