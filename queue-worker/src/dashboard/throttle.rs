//! How many wrong tokens are compared: of each peer so many in a minute, and of all of them together no more than a table has room for. Pure.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{extract::ConnectInfo, http::Extensions};

/// So many wrong tokens may be said from one place in [`WINDOW`]; then none that comes from there is compared until that is over.
pub(super) const WRONG: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_mins(1);

/// So many places are told apart at a time. Those beyond share one count, so that no more than `WRONG * (PLACES + 1)` wrong tokens are compared in a
/// minute, whoever says them.
const PLACES: usize = 1024;

/// Where a request comes from: the peer of its connection, whatever its headers say. Of IPv6 it is a network of 64 bits, as one host has all of one.
/// `None` if the server does not say it: all such requests come from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(Option<IpAddr>);

impl Place {
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| network(peer.0.ip())))
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The wrong tokens of late.
#[derive(Default)]
pub(super) struct Throttle {
    places: HashMap<Place, WrongOnes>,
    /// Of those for whom there is no room.
    others: WrongOnes,
}

impl Throttle {
    /// How long nothing is compared that comes from there, if too many were said.
    pub(super) fn closed_for(&mut self, place: Place, now: Instant) -> Option<Duration> {
        if let Some(wrong) = self.places.get(&place) {
            return wrong.closed_for(now);
        }
        if self.has_room(now) { None } else { self.others.closed_for(now) }
    }

    pub(super) fn note(&mut self, place: Place, now: Instant) {
        if self.places.contains_key(&place) || self.has_room(now) {
            let whose = place.0.map_or_else(|| "an address that is not known".to_owned(), |ip| format!("{ip}"));
            self.places.entry(place).or_default().note(now, &whose);
        } else {
            self.others.note(now, "addresses that are too many to be told apart");
        }
    }

    /// Whether there is room for one more, once those are forgotten whose minute is over.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.places.len() >= PLACES {
            self.places.retain(|_, wrong| wrong.left(now).is_some());
        }
        self.places.len() < PLACES
    }
}

/// Those of one place.
#[derive(Default)]
struct WrongOnes {
    since: Option<Instant>,
    said: u32,
}

impl WrongOnes {
    /// How much of their minute is left.
    fn left(&self, now: Instant) -> Option<Duration> {
        self.since.and_then(|since| WINDOW.checked_sub(now.saturating_duration_since(since))).filter(|left| !left.is_zero())
    }

    fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.left(now).filter(|_| self.said >= WRONG)
    }

    fn note(&mut self, now: Instant, whose: &str) {
        if self.left(now).is_none() {
            *self = Self { since: Some(now), said: 0 };
        }
        self.said += 1;
        if self.said == WRONG {
            tracing::warn!(
                "{WRONG} wrong tokens were said to the dashboard from {whose} within a minute: none is compared until that is over"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ip: &str) -> Place {
        Place(Some(network(ip.parse().unwrap())))
    }

    fn seconds(seconds: u32) -> Duration {
        Duration::from_secs(seconds.into())
    }

    /// How many wrong tokens are compared, of so many that are said from there at once.
    fn compared(throttle: &mut Throttle, place: Place, now: Instant) -> u32 {
        let said = (0..2 * WRONG).filter(|_| {
            let is_open = throttle.closed_for(place, now).is_none();
            if is_open {
                throttle.note(place, now);
            }
            is_open
        });
        u32::try_from(said.count()).unwrap()
    }

    #[test]
    fn so_many_wrong_tokens_of_a_place_are_compared_in_a_minute_and_no_more() {
        let (mut throttle, began, here) = (Throttle::default(), Instant::now(), place("192.0.2.1"));
        for second in 0..WRONG {
            assert_eq!(throttle.closed_for(here, began + seconds(second)), None);
            throttle.note(here, began + seconds(second));
        }
        assert_eq!(throttle.closed_for(here, began + seconds(20)), Some(seconds(40)));
        for other in [place("192.0.2.2"), place("2001:db8::1"), Place(None)] {
            assert_eq!(compared(&mut throttle, other, began + seconds(20)), WRONG, "others are not kept out");
        }
        assert_eq!(throttle.closed_for(here, began + WINDOW), None, "it is over");
        throttle.note(here, began + WINDOW);
        assert_eq!(throttle.closed_for(here, began + WINDOW), None, "and counted anew");
    }

    #[test]
    fn a_host_is_one_place_whichever_of_its_addresses_it_takes() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(compared(&mut throttle, place("2001:db8:1:2::1"), now), WRONG);
        assert_eq!(compared(&mut throttle, place("2001:db8:1:2:ffff:ffff:ffff:ffff"), now), 0);
        assert_eq!(compared(&mut throttle, place("2001:db8:1:3::1"), now), WRONG);
        assert_eq!(compared(&mut throttle, place("192.0.2.1"), now), WRONG);
        assert_eq!(compared(&mut throttle, place("::ffff:192.0.2.1"), now), 0, "this is the same one");
    }

    #[test]
    #[ignore = "deep"]
    fn from_however_many_places_no_more_are_compared_than_the_table_has_room_for() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let v4 = |number: u32| place(&std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string());
        let mut all = 0;
        for number in 0..4 * u32::try_from(PLACES).unwrap() {
            all += compared(&mut throttle, v4(number), now);
        }
        assert_eq!(all, WRONG * (u32::try_from(PLACES).unwrap() + 1));
        assert_eq!(throttle.places.len(), PLACES);
        assert_eq!(throttle.closed_for(place("192.0.2.1"), now), Some(WINDOW), "whoever comes then is one of the others");
        assert_eq!(compared(&mut throttle, place("192.0.2.1"), now + WINDOW), WRONG, "those whose minute is over make room");
    }

    #[test]
    fn whoever_says_nothing_wrong_takes_no_room() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..10 {
            assert_eq!(throttle.closed_for(place(&format!("192.0.2.{number}")), now), None);
        }
        assert!(throttle.places.is_empty());
    }
}
