use queue_core::registry::Registry;

use super::*;
use crate::live::{ClaimerState, LimitRow, PauseRow, Pauses};

fn lane(id: i64, priority: i16) -> Lane {
    Lane { id, queue: "q".into(), job_type: "t", version: 1, priority, solo: false, paired: false, fair: false }
}

/// Creates many lanes. Every fifth lane is under a limit.
fn under_a_limit() -> Lanes {
    let mut lanes = Lanes::new(&[("t", 1), ("limited", 1)], HashSet::new(), None);
    lanes.track.lanes.extend((0..500).map(|id| (id, Lane { job_type: if id % 5 == 0 { "limited" } else { "t" }, ..lane(id, 100) })));
    let limit = LimitRow { limit_id: 7, revision: 1, most: Some(3), timed: false, keyed: false };
    let row = PauseRow { number: 1, queue: "*".to_owned(), job_type: "limited".to_owned(), limit: Some(limit) };
    lanes.pause(Pauses::new(Registry::new()).read(vec![row]).unwrap());
    lanes
}

#[test]
fn many_lanes_are_probed_one_by_one_only_while_some_are_closed() {
    let mut lanes = under_a_limit();
    let inbox = Arc::clone(&lanes.groups.of(5).unwrap().inbox);
    inbox.set_state(ClaimerState::Resting);
    lanes.groups.of(1).unwrap().inbox.set_state(ClaimerState::Resting);
    assert!(lanes.lanes_to_probe(false).is_none());
    inbox.set_state(ClaimerState::Closed);
    let probed = lanes.lanes_to_probe(false).unwrap();
    assert!(probed.len() == 400 && probed.iter().all(|lane| lane % 5 != 0));
    lanes.track.lanes.extend((500..=10 * MANY as i64).map(|id| (id, lane(id, 100))));
    assert!(lanes.lanes_to_probe(false).is_none(), "too many to be probed");
    inbox.set_state(ClaimerState::Resting);
    lanes.track.lanes.retain(|id, _| *id < 100);
    assert_eq!(lanes.lanes_to_probe(false).map(|probed| probed.len()), Some(100));
}
