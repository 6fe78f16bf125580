//! Limits the number of wrong tokens that are verified per minute, both per client address and in total. Performs no I/O.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{extract::ConnectInfo, http::Extensions};

/// Maximum number of wrong tokens from one address within [`WINDOW`]. Until the window ends, further tokens from the address are rejected
/// without verification.
pub(super) const MAX_FAILURES: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_mins(1);

/// Maximum number of addresses with separate counts. All other addresses share one count. The total number of wrong tokens that are
/// verified per minute is therefore at most `MAX_FAILURES * (MAX_ADDRESSES + 1)`.
const MAX_ADDRESSES: usize = 1024;

/// Address of the client, taken from the connection and not from headers. IPv6 addresses are reduced to their /64 network, because a
/// single host can own the whole network. `None` if the server does not provide the address. All clients without an address share one
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientAddress(Option<IpAddr>);

impl ClientAddress {
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

/// Number of recent wrong tokens per client address.
#[derive(Default)]
pub(super) struct LoginThrottle {
    by_address: HashMap<ClientAddress, FailureCount>,
    /// Count shared by all addresses without a separate count.
    others: FailureCount,
}

impl LoginThrottle {
    /// Returns the remaining time for which tokens from `address` are rejected without verification. Returns `None` if the address is not
    /// blocked.
    pub(super) fn blocked_for(&mut self, address: ClientAddress, now: Instant) -> Option<Duration> {
        if let Some(wrong) = self.by_address.get(&address) {
            return wrong.blocked_for(now);
        }
        if self.has_capacity(now) { None } else { self.others.blocked_for(now) }
    }

    pub(super) fn record_failure(&mut self, address: ClientAddress, now: Instant) {
        if self.by_address.contains_key(&address) || self.has_capacity(now) {
            let client = address.0.map_or_else(|| "an unknown address".to_owned(), |ip| format!("{ip}"));
            self.by_address.entry(address).or_default().record_failure(now, &client);
        } else {
            self.others.record_failure(now, "addresses without a count of their own");
        }
    }

    /// Removes expired counts if the map is full. Returns whether another address can get a separate count.
    fn has_capacity(&mut self, now: Instant) -> bool {
        if self.by_address.len() >= MAX_ADDRESSES {
            self.by_address.retain(|_, wrong| wrong.remaining(now).is_some());
        }
        self.by_address.len() < MAX_ADDRESSES
    }
}

/// Number of wrong tokens in the current window, with the window's start time.
#[derive(Default)]
struct FailureCount {
    since: Option<Instant>,
    count: u32,
}

impl FailureCount {
    /// Returns the remaining time of the current window, or `None` if no window is in progress.
    fn remaining(&self, now: Instant) -> Option<Duration> {
        self.since.and_then(|since| WINDOW.checked_sub(now.saturating_duration_since(since))).filter(|left| !left.is_zero())
    }

    fn blocked_for(&self, now: Instant) -> Option<Duration> {
        self.remaining(now).filter(|_| self.count >= MAX_FAILURES)
    }

    fn record_failure(&mut self, now: Instant, client: &str) {
        if self.remaining(now).is_none() {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        if self.count == MAX_FAILURES {
            tracing::warn!("{MAX_FAILURES} failed logins to the dashboard from {client} within a minute; blocked until the minute ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(ip: &str) -> ClientAddress {
        ClientAddress(Some(network(ip.parse().unwrap())))
    }

    fn seconds(seconds: u32) -> Duration {
        Duration::from_secs(seconds.into())
    }

    /// Simulates `2 * MAX_FAILURES` logins with a wrong token from one address. Returns how many of the tokens were verified.
    fn count_verified(throttle: &mut LoginThrottle, address: ClientAddress, now: Instant) -> u32 {
        let count = (0..2 * MAX_FAILURES).filter(|_| {
            let is_open = throttle.blocked_for(address, now).is_none();
            if is_open {
                throttle.record_failure(address, now);
            }
            is_open
        });
        u32::try_from(count.count()).unwrap()
    }

    #[test]
    fn an_address_is_blocked_after_too_many_failures_in_a_window() {
        let (mut throttle, began, here) = (LoginThrottle::default(), Instant::now(), address("192.0.2.1"));
        for second in 0..MAX_FAILURES {
            assert_eq!(throttle.blocked_for(here, began + seconds(second)), None);
            throttle.record_failure(here, began + seconds(second));
        }
        assert_eq!(throttle.blocked_for(here, began + seconds(20)), Some(seconds(40)));
        for other in [address("192.0.2.2"), address("2001:db8::1"), ClientAddress(None)] {
            assert_eq!(count_verified(&mut throttle, other, began + seconds(20)), MAX_FAILURES, "other addresses are not blocked");
        }
        assert_eq!(throttle.blocked_for(here, began + WINDOW), None, "the window has ended");
        throttle.record_failure(here, began + WINDOW);
        assert_eq!(throttle.blocked_for(here, began + WINDOW), None, "and the count restarts");
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_share_one_count() {
        let (mut throttle, now) = (LoginThrottle::default(), Instant::now());
        assert_eq!(count_verified(&mut throttle, address("2001:db8:1:2::1"), now), MAX_FAILURES);
        assert_eq!(count_verified(&mut throttle, address("2001:db8:1:2:ffff:ffff:ffff:ffff"), now), 0);
        assert_eq!(count_verified(&mut throttle, address("2001:db8:1:3::1"), now), MAX_FAILURES);
        assert_eq!(count_verified(&mut throttle, address("192.0.2.1"), now), MAX_FAILURES);
        assert_eq!(count_verified(&mut throttle, address("::ffff:192.0.2.1"), now), 0, "a mapped IPv4 address is the same address");
    }

    #[test]
    #[ignore = "deep"]
    fn verified_failures_are_bounded_for_any_number_of_addresses() {
        let (mut throttle, now) = (LoginThrottle::default(), Instant::now());
        let v4 = |number: u32| address(&std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string());
        let mut all = 0;
        for number in 0..4 * u32::try_from(MAX_ADDRESSES).unwrap() {
            all += count_verified(&mut throttle, v4(number), now);
        }
        assert_eq!(all, MAX_FAILURES * (u32::try_from(MAX_ADDRESSES).unwrap() + 1));
        assert_eq!(throttle.by_address.len(), MAX_ADDRESSES);
        assert_eq!(throttle.blocked_for(address("192.0.2.1"), now), Some(WINDOW), "a new address shares the common count");
        assert_eq!(count_verified(&mut throttle, address("192.0.2.1"), now + WINDOW), MAX_FAILURES, "expired counts make room");
    }

    #[test]
    fn addresses_without_failures_take_no_space() {
        let (mut throttle, now) = (LoginThrottle::default(), Instant::now());
        for number in 0..10 {
            assert_eq!(throttle.blocked_for(address(&format!("192.0.2.{number}")), now), None);
        }
        assert!(throttle.by_address.is_empty());
    }
}
