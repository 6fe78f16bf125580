use queue_core::Registry;

use super::*;
use crate::live::{LimitRow, PauseRow, Pauses};

fn lane(id: i64, priority: i16) -> Lane {
    Lane { id, queue: "q".into(), job_type: "t", version: 1, priority, solo: false, lined: false, fair: false }
}

#[test]
fn what_a_full_claim_did_not_come_to_is_offered_first() {
    let mut lanes = Lanes::new(&[("t", 1)], HashSet::new(), None);
    lanes.track.known.extend((0..=500).map(|id| (id, lane(id, 100))));
    lanes.window.extend(1..=300);
    let ids = |lanes: Vec<&Lane>| lanes.into_iter().map(|lane| lane.id).collect::<Vec<_>>();
    let offered = ids(lanes.offer(0, true));
    assert_eq!(offered, (1..=150).collect::<Vec<_>>());
    lanes.take_back(offered[100..].iter().copied());
    assert_eq!(ids(lanes.offer(0, true)), (101..=200).collect::<Vec<_>>());
    assert_eq!(ids(lanes.offer(0, true)), (201..=300).collect::<Vec<_>>(), "what is left is not halved again");
}

#[test]
fn what_is_claimed_from_otherwise_is_not_offered_and_takes_no_place() {
    let mut lanes = Lanes::new(&[("t", 1), ("batched", 1)], HashSet::new(), None);
    lanes.track.known.extend((0..=500).map(|id| (id, Lane { job_type: if id % 5 == 0 { "t" } else { "batched" }, ..lane(id, 100) })));
    lanes.window.extend(1..=300);
    lanes.narrow(|job_type| job_type != "batched");
    let offered = lanes.offer(0, true).into_iter().map(|lane| lane.id).collect::<Vec<_>>();
    assert_eq!(offered, (1..=60).map(|n| 5 * n).collect::<Vec<_>>(), "half of them are too few to be split");
    lanes.take_back([6, 7, 10].into_iter());
    lanes.narrow(|job_type| job_type != "batched");
    assert_eq!(lanes.window, [10]);
    assert!(!lanes.must_look());
}

/// Many lanes, of which a limit covers every fifth.
fn under_a_limit() -> Lanes {
    let mut lanes = Lanes::new(&[("t", 1), ("limited", 1)], HashSet::new(), None);
    lanes.track.known.extend((0..500).map(|id| (id, Lane { job_type: if id % 5 == 0 { "limited" } else { "t" }, ..lane(id, 100) })));
    let limit = LimitRow { gate: 7, revision: 1, most: Some(3), timed: false, keyed: false };
    let row = PauseRow { number: 1, queue: "*".to_owned(), job_type: "limited".to_owned(), limit: Some(limit) };
    lanes.pause(Pauses::new(Registry::new()).read(vec![row]).unwrap());
    lanes
}

#[test]
fn what_limits_cover_is_not_offered_to_claims_without_them() {
    let mut lanes = under_a_limit();
    lanes.take_back([5, 6, 7, 10].into_iter());
    assert_eq!(lanes.window, [6, 7]);
}

#[test]
fn of_many_lanes_those_that_could_begin_are_asked_one_by_one_while_others_could_not() {
    let mut lanes = under_a_limit();
    let hint = Arc::clone(&lanes.groups.of(5).unwrap().hint);
    hint.show(ClaimerState::Resting);
    assert!(lanes.asked_apart().is_none());
    hint.show(ClaimerState::Shut);
    let asked = lanes.asked_apart().unwrap();
    assert!(asked.len() == 400 && asked.iter().all(|lane| lane % 5 != 0));
    lanes.track.known.extend((500..=10 * MANY as i64).map(|id| (id, lane(id, 100))));
    assert!(lanes.asked_apart().is_none(), "too many to be asked");
    hint.show(ClaimerState::Resting);
    lanes.track.known.retain(|id, _| *id < 100);
    assert_eq!(lanes.asked_apart().map(|asked| asked.len()), Some(100));
}
