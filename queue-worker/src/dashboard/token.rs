//! Who may come in: the token, and the cookie that stands for it. Neither is ever compared byte by byte.

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::options::Options;

/// The cookie's name.
pub(super) const COOKIE: &str = "queue_dashboard";

/// What the cookie is a seal of; another word makes cookies of an earlier release worth nothing.
const SEALED: &[u8] = b"queue dashboard cookie 1";

/// Knows the token without having it.
#[derive(Clone)]
pub(super) struct Keyhole(Option<Hmac<Sha256>>);

impl Keyhole {
    pub(super) fn new(token: Option<&str>) -> Self {
        Self(token.map(|token| {
            if token.chars().count() >= Options::SHORTEST_TOKEN {
                return sealing_with(token);
            }
            // Nobody has this one. An empty token from some environment must not be a door that an empty form opens.
            tracing::error!("the dashboard's token is shorter than {} characters: nobody can come in", Options::SHORTEST_TOKEN);
            sealing_with(&format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4()))
        }))
    }

    pub(super) fn is_locked(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the headers carry the token or its cookie, or none is wanted.
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let Some(own) = &self.0 else { return true };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(';'));
        let sealed = cookies.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')).take(4);
        bearer.is_some_and(|token| self.is(token))
            || sealed.filter_map(unhex).any(|seal| own.clone().chain_update(SEALED).verify_slice(&seal).is_ok())
    }

    /// Whether this is the token. What is compared are seals, in a time that does not hang on where they differ.
    pub(super) fn is(&self, token: &str) -> bool {
        let Some(own) = &self.0 else { return true };
        let said = sealing_with(token).chain_update(SEALED).finalize().into_bytes();
        own.clone().chain_update(SEALED).verify_slice(&said).is_ok()
    }

    /// What the cookie says: a seal that only the token makes, and from which nobody can tell the token.
    pub(super) fn cookie(&self) -> String {
        let seal = self.0.iter().flat_map(|own| own.clone().chain_update(SEALED).finalize().into_bytes());
        seal.fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

fn sealing_with(token: &str) -> Hmac<Sha256> {
    Hmac::new_from_slice(token.as_bytes()).expect("this hash takes a key of any length")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| (0..32).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TOKEN: &str = "a token of some length";

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_token_and_its_cookie_open_and_nothing_else_does() {
        let keyhole = Keyhole::new(Some(TOKEN));
        let (cookie, other) = (keyhole.cookie(), Keyhole::new(Some("another token of length")).cookie());
        assert!(keyhole.opens(&with(header::AUTHORIZATION, &format!("Bearer {TOKEN}"))));
        assert!(keyhole.opens(&with(header::COOKIE, &format!("a=b; {COOKIE}={cookie}"))));
        let wrong =
            [format!("Bearer {TOKEN}x"), "Bearer ".to_owned(), TOKEN.to_owned(), format!("Basic {TOKEN}"), format!("Bearer {cookie}")];
        assert!(wrong.iter().all(|said| !keyhole.opens(&with(header::AUTHORIZATION, said))));
        let wrong = [TOKEN, &other, "", "0", &cookie[..62], &format!("{cookie}00"), &cookie.replace(|c: char| c.is_ascii_digit(), "é")];
        assert!(
            wrong
                .iter()
                .filter_map(|said| HeaderValue::from_str(&format!("{COOKIE}={said}")).ok())
                .all(|line| { !keyhole.opens(&HeaderMap::from_iter([(header::COOKIE, line)])) })
        );
        assert!(!keyhole.opens(&HeaderMap::new()) && Keyhole::new(None).opens(&HeaderMap::new()));
        assert!(!cookie.contains(TOKEN));
    }
}
