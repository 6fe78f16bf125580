use super::*;

fn lane(id: i64, priority: i16) -> Lane {
    Lane { id, queue: "q".to_owned(), job_type: "t", version: 1, priority, solo: false, lined: false, fair: false }
}

#[test]
fn what_a_full_claim_did_not_come_to_is_offered_first() {
    let mut lanes = Lanes::new(&[("t", 1)], HashSet::new(), None);
    lanes.known.extend((0..=500).map(|id| (id, lane(id, 100))));
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
    lanes.known.extend((0..=500).map(|id| (id, Lane { job_type: if id % 5 == 0 { "t" } else { "batched" }, ..lane(id, 100) })));
    lanes.window.extend(1..=300);
    lanes.narrow(|job_type| job_type != "batched");
    let offered = lanes.offer(0, true).into_iter().map(|lane| lane.id).collect::<Vec<_>>();
    assert_eq!(offered, (1..=60).map(|n| 5 * n).collect::<Vec<_>>(), "half of them are too few to be split");
    lanes.take_back([6, 7, 10].into_iter());
    lanes.narrow(|job_type| job_type != "batched");
    assert_eq!(lanes.window, [10]);
    assert!(!lanes.must_look());
}
