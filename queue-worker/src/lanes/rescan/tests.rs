use super::*;

/// One that was owed and took long.
fn slow() -> Rescan {
    let mut rescan = Rescan { owed: true, ..Rescan::default() };
    rescan.begin();
    rescan.done(Duration::from_secs(1), 0);
    rescan
}

/// Plays one part of a look by blocks; returns what it looked at.
fn part(rescan: &mut Rescan, (blocks, live, dead): (i64, i64, i64), is_full: bool) -> Vec<(i64, i64)> {
    rescan.begin();
    let extent = Extent { blocks, live, dead, place: None };
    let sweep = rescan.sweep().expect("it goes by blocks");
    let (parts, swept) = if extent.by_index() {
        (Vec::new(), Swept::none())
    } else {
        let (parts, next) = sweep.parts(blocks);
        (parts, Swept::until(next))
    };
    rescan.did(Duration::from_millis(1), swept, is_full);
    parts
}

const MANY: i64 = 1_000_000;

#[test]
fn a_slow_rescan_waits_twenty_times_as_long() {
    let mut rescan = Rescan::default();
    assert!(rescan.is_due());
    rescan.begin();
    assert!(!rescan.is_due(), "one is on its way");
    rescan.done(Duration::from_secs(1), 0);
    assert!(!rescan.may(Instant::now() + Duration::from_secs(19)));
    assert!(rescan.may(Instant::now() + Duration::from_secs(21)));
    assert!(!rescan.may_take_long(Instant::now() + Duration::from_secs(399)));
    assert!(rescan.may_take_long(Instant::now() + Duration::from_secs(401)));
}

#[test]
fn only_the_first_part_by_blocks_comes_sooner() {
    let mut rescan = slow();
    rescan.hurry();
    assert!(rescan.may(Instant::now()));
    rescan.done(Duration::from_secs(1), 0);
    rescan.hurry();
    assert!(!rescan.may(Instant::now()), "that it is slow is no news");
    rescan.done(Duration::from_millis(1), 0);
    rescan.hurry();
    assert!(!rescan.may(Instant::now()), "it is quick");
}

#[test]
fn a_look_by_blocks_comes_to_each_of_them_and_to_the_last_ones_every_time() {
    let mut rescan = slow();
    rescan.owed = true;
    assert_eq!(part(&mut rescan, (600, 0, MANY), false), [(0, 256), (344, 600)]);
    assert!(!rescan.owed && rescan.owes() && rescan.owed_at().is_some(), "it is half done");
    rescan.owed = true;
    assert_eq!(part(&mut rescan, (610, 0, MANY), false), [(256, 512), (568, 610)]);
    assert!(rescan.owed, "what came back short after it began is owed another");
    assert_eq!(part(&mut rescan, (620, 0, MANY), false), [(512, 620)]);
    assert!(rescan.owed, "which comes next");
    for _ in 0..3 {
        assert!(rescan.owes());
        part(&mut rescan, (620, 0, MANY), false);
    }
    assert!(!rescan.owes() && rescan.is_slow());
}

#[test]
fn a_part_that_may_have_left_some_holds_up_no_other_and_owes_another_look() {
    let mut rescan = slow();
    assert_eq!(part(&mut rescan, (300, 0, MANY), true), [(0, 256), (256, 300)]);
    assert_eq!(part(&mut rescan, (300, 0, MANY), true), [(256, 300)]);
    assert_eq!(part(&mut rescan, (300, 0, MANY), false)[0], (0, 256));
    part(&mut rescan, (300, 0, MANY), false);
    assert!(!rescan.owes());
}

#[test]
fn where_an_index_leads_there_sooner_the_next_look_is_of_all() {
    for extent in [(0, 0, 0), (600, 0, 5_000), (100_000, 10 * MANY, MANY)] {
        let mut rescan = slow();
        assert_eq!(part(&mut rescan, (600, 0, MANY), false).len(), 2);
        assert_eq!(part(&mut rescan, extent, false), []);
        assert!(rescan.owed && rescan.sweep().is_none() && rescan.is_slow());
        rescan.begin();
        assert!(!rescan.owes());
        rescan.done(Duration::from_secs(1), 0);
        assert!(rescan.sweep().is_some(), "then it is asked again");
        rescan.done(Duration::from_millis(1), 0);
        assert!(!rescan.is_slow());
    }
}

#[test]
fn a_table_that_was_cut_meanwhile_is_looked_at_from_its_beginning() {
    let mut rescan = slow();
    part(&mut rescan, (1_000, 0, MANY), false);
    assert_eq!(part(&mut rescan, (100, 0, MANY), false), [(0, 100)]);
    assert!(!rescan.owes());
}

#[test]
fn nobody_waits_for_a_look_that_is_on_its_way_or_that_has_no_lane() {
    let mut rescan = slow();
    rescan.hurry();
    part(&mut rescan, (600, 0, MANY), false);
    rescan.begin();
    let soon = Instant::now() + Duration::from_millis(900);
    assert!(rescan.owes() && rescan.owed_at().is_some_and(|at| at > soon));
    rescan.end();
    assert!(!rescan.owes() && !rescan.is_slow() && rescan.owed_at().is_none());
}
