//! How many bytes the payloads of each lane have, by the last ones, and what of them there is room for.

use std::collections::HashMap;

use super::{
    hand::Hand,
    left_out::{fitting, is_large, weighs},
};

/// Of lanes with large payloads.
#[derive(Default)]
pub(crate) struct Sizes(HashMap<i64, usize>);

impl Sizes {
    pub(super) fn note(&mut self, sizes: impl Iterator<Item = (i64, usize)>) {
        for (lane, bytes) in sizes {
            if is_large(bytes) {
                self.0.insert(lane, bytes);
            } else if !self.0.is_empty() {
                self.0.remove(&lane);
            }
        }
    }

    pub(super) fn keep(&mut self, is_known: impl Fn(i64) -> bool) {
        self.0.retain(|lane, _| is_known(*lane));
    }

    /// Of so many jobs of each lane, so many as one claim may bring and as there is room for in hand. Once a lane has no room others have none either,
    /// lest one of larger payloads waits for ever.
    pub(crate) fn fit(&self, asked: impl Iterator<Item = (i64, usize)>, hand: &Hand) -> Vec<usize> {
        let mut is_full = false;
        let fit = |(lane, most): (i64, usize)| {
            let Some(bytes) = self.0.get(&lane) else { return most };
            if !weighs(*bytes) {
                return most.min(fitting(*bytes));
            }
            let room = if is_full { 0 } else { hand.fits(*bytes) };
            is_full |= room == 0;
            most.min(fitting(*bytes)).min(room)
        };
        asked.map(fit).collect()
    }

    /// How many bytes so many jobs of a lane are likely to bring.
    pub(crate) fn weight(&self, lane: i64, jobs: usize) -> usize {
        self.0.get(&lane).map_or(0, |bytes| bytes.saturating_mul(jobs))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::live::{Bell, Vitals};

    #[test]
    fn where_there_is_no_room_large_ones_wait_in_their_order_and_small_ones_go_on() {
        const MIB: usize = 1024 * 1024;
        let (mut sizes, hand) = (Sizes::default(), Hand::new(192, &Arc::new(Bell::of(Vitals::default()))));
        sizes.note([(1, 20 * MIB), (2, 2048), (3, MIB), (4, 10)].into_iter());
        let asked = || (1..=4).map(|lane| (lane, 5));
        assert_eq!(sizes.fit(asked(), &hand), [1, 5, 5, 5], "one claim brings one of the largest");
        let held = hand.hold(80 * MIB);
        assert_eq!(sizes.fit(asked(), &hand), [0, 5, 0, 5], "others leave the room to the first");
        assert_eq!(sizes.fit([(3, 50)].into_iter(), &hand), [16]);
        assert_eq!((sizes.weight(3, 4), sizes.weight(4, 4)), (4 * MIB, 0));
        drop(held);
    }
}
