use super::*;

/// Returns a [`LateScan`] whose last full scan was slow.
fn slow() -> LateScan {
    let mut late_scan = LateScan { is_requested: true, ..LateScan::default() };
    late_scan.begin();
    late_scan.record_full(Duration::from_secs(1), 0);
    late_scan
}

/// Performs one part of a block scan and returns its block ranges.
fn part(late_scan: &mut LateScan, (blocks, live, dead): (i64, i64, i64), is_full: bool) -> Vec<(i64, i64)> {
    late_scan.begin();
    let extent = TableExtent { blocks, live, dead, place: None };
    let cursor = late_scan.block_cursor().expect("it goes by blocks");
    let (parts, block_scan) = if extent.use_index() {
        (Vec::new(), BlockScan::skipped())
    } else {
        let (parts, next) = cursor.parts(blocks);
        (parts, BlockScan::up_to(next))
    };
    late_scan.record_blocks(Duration::from_millis(1), block_scan, is_full);
    parts
}

const MANY: i64 = 1_000_000;

#[test]
fn scans_take_at_most_a_twentieth_of_the_time() {
    let mut late_scan = LateScan::default();
    assert!(late_scan.is_overdue());
    late_scan.begin();
    assert!(!late_scan.is_overdue(), "one is on its way");
    late_scan.record_full(Duration::from_secs(1), 0);
    assert!(!late_scan.is_allowed(Instant::now() + Duration::from_secs(19)));
    assert!(late_scan.is_allowed(Instant::now() + Duration::from_secs(21)));
    assert!(!late_scan.allows_full_scan(Instant::now() + Duration::from_secs(399)));
    assert!(late_scan.allows_full_scan(Instant::now() + Duration::from_secs(401)));
}

#[test]
fn only_the_first_block_scan_starts_early() {
    let mut late_scan = slow();
    late_scan.start_blocks_soon();
    assert!(late_scan.is_allowed(Instant::now()));
    late_scan.record_full(Duration::from_secs(1), 0);
    late_scan.start_blocks_soon();
    assert!(!late_scan.is_allowed(Instant::now()), "it was slow before");
    late_scan.record_full(Duration::from_millis(1), 0);
    late_scan.start_blocks_soon();
    assert!(!late_scan.is_allowed(Instant::now()), "it is quick");
}

#[test]
fn a_block_scan_covers_every_block_and_the_last_ones_in_every_part() {
    let mut late_scan = slow();
    late_scan.is_requested = true;
    assert_eq!(part(&mut late_scan, (600, 0, MANY), false), [(0, 256), (344, 600)]);
    assert!(!late_scan.is_requested && late_scan.is_pending() && late_scan.pending_at().is_some(), "the scan is incomplete");
    late_scan.is_requested = true;
    assert_eq!(part(&mut late_scan, (610, 0, MANY), false), [(256, 512), (568, 610)]);
    assert!(late_scan.is_requested, "a claim fell short after the scan began");
    assert_eq!(part(&mut late_scan, (620, 0, MANY), false), [(512, 620)]);
    assert!(late_scan.is_requested, "which comes next");
    for _ in 0..3 {
        assert!(late_scan.is_pending());
        part(&mut late_scan, (620, 0, MANY), false);
    }
    assert!(!late_scan.is_pending() && late_scan.is_slow());
}

#[test]
fn a_full_part_delays_no_other_and_requests_another_scan() {
    let mut late_scan = slow();
    assert_eq!(part(&mut late_scan, (300, 0, MANY), true), [(0, 256), (256, 300)]);
    assert_eq!(part(&mut late_scan, (300, 0, MANY), true), [(256, 300)]);
    assert_eq!(part(&mut late_scan, (300, 0, MANY), false)[0], (0, 256));
    part(&mut late_scan, (300, 0, MANY), false);
    assert!(!late_scan.is_pending());
}

#[test]
fn where_the_index_is_faster_the_next_scan_is_complete() {
    for extent in [(0, 0, 0), (600, 0, 5_000), (100_000, 10 * MANY, MANY)] {
        let mut late_scan = slow();
        assert_eq!(part(&mut late_scan, (600, 0, MANY), false).len(), 2);
        assert_eq!(part(&mut late_scan, extent, false), []);
        assert!(late_scan.is_requested && late_scan.block_cursor().is_none() && late_scan.is_slow());
        late_scan.begin();
        assert!(!late_scan.is_pending());
        late_scan.record_full(Duration::from_secs(1), 0);
        assert!(late_scan.block_cursor().is_some(), "block scans resume");
        late_scan.record_full(Duration::from_millis(1), 0);
        assert!(!late_scan.is_slow());
    }
}

#[test]
fn a_truncated_table_is_scanned_from_its_beginning() {
    let mut late_scan = slow();
    part(&mut late_scan, (1_000, 0, MANY), false);
    assert_eq!(part(&mut late_scan, (100, 0, MANY), false), [(0, 100)]);
    assert!(!late_scan.is_pending());
}

#[test]
fn nothing_waits_for_a_scan_in_flight_or_without_lanes() {
    let mut late_scan = slow();
    late_scan.start_blocks_soon();
    part(&mut late_scan, (600, 0, MANY), false);
    late_scan.begin();
    let soon = Instant::now() + Duration::from_millis(900);
    assert!(late_scan.is_pending() && late_scan.pending_at().is_some_and(|at| at > soon));
    late_scan.clear();
    assert!(!late_scan.is_pending() && !late_scan.is_slow() && late_scan.pending_at().is_none());
}
