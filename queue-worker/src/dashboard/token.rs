//! Authentication by the dashboard token or by a cookie derived from the token. Tokens and cookies are compared in constant time.

use std::{
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use axum::http::{HeaderMap, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{
    options::Options,
    problem::{HandlerResult, Problem},
    throttle::{ClientAddress, LoginThrottle},
};

/// Name of the authentication cookie.
pub(super) const COOKIE: &str = "queue_dashboard";

/// Message of the MAC that forms the cookie value. The token is the key of the MAC. Changing the message invalidates existing cookies.
const COOKIE_MESSAGE: &[u8] = b"queue dashboard cookie 1";

/// Verifier of tokens and cookies. Does not store the token itself.
pub(super) struct TokenAuth {
    mac: Option<Hmac<Sha256>>,
    failures: Mutex<LoginThrottle>,
}

impl TokenAuth {
    /// Creates the verifier. The caller must have checked the length of `token`. `None` disables authentication.
    pub(super) fn new(token: Option<&str>) -> Self {
        Self { mac: token.map(mac_with), failures: Mutex::default() }
    }

    pub(super) fn is_required(&self) -> bool {
        self.mac.is_some()
    }

    /// Returns whether the headers contain the token or a valid cookie. Returns `true` if no token is required. A cookie is accepted even
    /// from a blocked address, because cookies cannot be guessed.
    pub(super) fn authenticates(&self, headers: &HeaderMap, from: ClientAddress) -> HandlerResult<bool> {
        let Some(mac) = &self.mac else { return Ok(true) };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(';'));
        let mut sealed = cookies.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')).take(4).filter_map(decode_hex);
        if sealed.any(|seal| mac.clone().chain_update(COOKIE_MESSAGE).verify_slice(&seal).is_ok()) {
            return Ok(true);
        }
        bearer.map_or(Ok(false), |token| self.verify(token, from))
    }

    /// Returns whether `token` is correct, or an error if the address is blocked. Compares MACs in constant time.
    pub(super) fn verify(&self, token: &str, from: ClientAddress) -> HandlerResult<bool> {
        let Some(mac) = &self.mac else { return Ok(true) };
        // A poisoned lock is safe to use, because no code can panic while the counts are inconsistent.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = failures.blocked_for(from, Instant::now()) {
            return Err(Problem::too_many_requests(left, "too many failed logins from this address; try again later"));
        }
        // A value that exceeds the maximum token length is wrong, so it is not hashed.
        let candidate =
            (token.len() <= Options::LONGEST_TOKEN).then(|| mac_with(token).chain_update(COOKIE_MESSAGE).finalize().into_bytes());
        let is_right = candidate.is_some_and(|candidate| mac.clone().chain_update(COOKIE_MESSAGE).verify_slice(&candidate).is_ok());
        if !is_right {
            failures.record_failure(from, Instant::now());
        }
        Ok(is_right)
    }

    /// Returns the cookie value: a MAC keyed with the token. The token cannot be derived from the cookie.
    pub(super) fn cookie(&self) -> String {
        let seal = self.mac.iter().flat_map(|mac| mac.clone().chain_update(COOKIE_MESSAGE).finalize().into_bytes());
        seal.fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

fn mac_with(token: &str) -> Hmac<Sha256> {
    Hmac::new_from_slice(token.as_bytes()).expect("HMAC accepts keys of any length")
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use axum::http::{Extensions, HeaderValue};

    use super::*;

    const TOKEN: &str = "a token of some length";

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_the_token_and_its_cookie_authenticate() {
        let token_auth = TokenAuth::new(Some(TOKEN));
        let (cookie, other) = (token_auth.cookie(), TokenAuth::new(Some("another token of length")).cookie());
        let from = ClientAddress::of(&Extensions::new());
        let opens = |headers: &HeaderMap| token_auth.authenticates(headers, from).unwrap();
        assert!(opens(&with(header::AUTHORIZATION, &format!("Bearer {TOKEN}"))));
        assert!(opens(&with(header::COOKIE, &format!("a=b; {COOKIE}={cookie}"))));
        let wrong =
            [format!("Bearer {TOKEN}x"), "Bearer ".to_owned(), TOKEN.to_owned(), format!("Basic {TOKEN}"), format!("Bearer {cookie}")];
        assert!(wrong.iter().all(|candidate| !opens(&with(header::AUTHORIZATION, candidate))));
        let wrong = [TOKEN, &other, "", "0", &cookie[..62], &format!("{cookie}00"), &cookie.replace(|c: char| c.is_ascii_digit(), "é")];
        assert!(
            wrong
                .iter()
                .filter_map(|candidate| HeaderValue::from_str(&format!("{COOKIE}={candidate}")).ok())
                .all(|line| { !opens(&HeaderMap::from_iter([(header::COOKIE, line)])) })
        );
        assert!(!opens(&HeaderMap::new()) && TokenAuth::new(None).authenticates(&HeaderMap::new(), from).unwrap());
        assert!(!cookie.contains(TOKEN));
        let [longest, longer] = [Options::LONGEST_TOKEN, Options::LONGEST_TOKEN + 1].map(|length| "x".repeat(length));
        let of = |token: &str| {
            TokenAuth::new(Some(token)).authenticates(&with(header::AUTHORIZATION, &format!("Bearer {token}")), from).unwrap()
        };
        assert_eq!((of(&longest), of(&longer)), (true, false), "longer values are not hashed");
    }
}
