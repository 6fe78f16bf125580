use queue_core::Registry;

use super::*;
use crate::live::{ClaimerState, LimitRow, PauseRow, Pauses};

fn lane(id: i64, priority: i16) -> Lane {
    Lane { id, queue: "q".into(), job_type: "t", version: 1, priority, solo: false, lined: false, fair: false }
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
fn of_many_lanes_those_that_could_begin_are_asked_one_by_one_while_others_could_not() {
    let mut lanes = under_a_limit();
    let hint = Arc::clone(&lanes.groups.of(5).unwrap().hint);
    hint.show(ClaimerState::Resting);
    lanes.groups.of(1).unwrap().hint.show(ClaimerState::Resting);
    assert!(lanes.asked_apart(false).is_none());
    hint.show(ClaimerState::Shut);
    let asked = lanes.asked_apart(false).unwrap();
    assert!(asked.len() == 400 && asked.iter().all(|lane| lane % 5 != 0));
    lanes.track.known.extend((500..=10 * MANY as i64).map(|id| (id, lane(id, 100))));
    assert!(lanes.asked_apart(false).is_none(), "too many to be asked");
    hint.show(ClaimerState::Resting);
    lanes.track.known.retain(|id, _| *id < 100);
    assert_eq!(lanes.asked_apart(false).map(|asked| asked.len()), Some(100));
}
