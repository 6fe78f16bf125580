//! Who may come in: the token, and the cookie that stands for it. Neither is ever compared byte by byte.

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
    problem::{Answer, Problem},
    throttle::{Place, Throttle},
};

/// The cookie's name.
pub(super) const COOKIE: &str = "queue_dashboard";

/// What the cookie is a seal of; another word makes cookies of an earlier release worth nothing.
const SEALED: &[u8] = b"queue dashboard cookie 1";

/// Knows the token without having it.
pub(super) struct Keyhole {
    own: Option<Hmac<Sha256>>,
    wrong: Mutex<Throttle>,
}

impl Keyhole {
    /// The token has the length that it must have.
    pub(super) fn new(token: Option<&str>) -> Self {
        Self { own: token.map(sealing_with), wrong: Mutex::default() }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.own.is_some()
    }

    /// Whether the headers carry the token or its cookie, or none is wanted. A cookie is worth something also while no token is compared: nobody guesses
    /// one.
    pub(super) fn opens(&self, headers: &HeaderMap, from: Place) -> Answer<bool> {
        let Some(own) = &self.own else { return Ok(true) };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(';'));
        let mut sealed = cookies.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')).take(4).filter_map(unhex);
        if sealed.any(|seal| own.clone().chain_update(SEALED).verify_slice(&seal).is_ok()) {
            return Ok(true);
        }
        bearer.map_or(Ok(false), |token| self.is(token, from))
    }

    /// Whether this is the token. What is compared are seals, in a time that does not hang on where they differ.
    pub(super) fn is(&self, token: &str, from: Place) -> Answer<bool> {
        let Some(own) = &self.own else { return Ok(true) };
        // Nothing is half-written under this lock.
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = wrong.closed_for(from, Instant::now()) {
            return Err(Problem::too_often(left, "too many wrong tokens were said; try again later"));
        }
        // What is longer is no token, and is not hashed.
        let said = (token.len() <= Options::LONGEST_TOKEN).then(|| sealing_with(token).chain_update(SEALED).finalize().into_bytes());
        let is_right = said.is_some_and(|said| own.clone().chain_update(SEALED).verify_slice(&said).is_ok());
        if !is_right {
            wrong.note(from, Instant::now());
        }
        Ok(is_right)
    }

    /// What the cookie says: a seal that only the token makes, and from which nobody can tell the token.
    pub(super) fn cookie(&self) -> String {
        let seal = self.own.iter().flat_map(|own| own.clone().chain_update(SEALED).finalize().into_bytes());
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
    use axum::http::{Extensions, HeaderValue};

    use super::*;

    const TOKEN: &str = "a token of some length";

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_token_and_its_cookie_open_and_nothing_else_does() {
        let keyhole = Keyhole::new(Some(TOKEN));
        let (cookie, other) = (keyhole.cookie(), Keyhole::new(Some("another token of length")).cookie());
        let from = Place::of(&Extensions::new());
        let opens = |headers: &HeaderMap| keyhole.opens(headers, from).unwrap();
        assert!(opens(&with(header::AUTHORIZATION, &format!("Bearer {TOKEN}"))));
        assert!(opens(&with(header::COOKIE, &format!("a=b; {COOKIE}={cookie}"))));
        let wrong =
            [format!("Bearer {TOKEN}x"), "Bearer ".to_owned(), TOKEN.to_owned(), format!("Basic {TOKEN}"), format!("Bearer {cookie}")];
        assert!(wrong.iter().all(|said| !opens(&with(header::AUTHORIZATION, said))));
        let wrong = [TOKEN, &other, "", "0", &cookie[..62], &format!("{cookie}00"), &cookie.replace(|c: char| c.is_ascii_digit(), "é")];
        assert!(
            wrong
                .iter()
                .filter_map(|said| HeaderValue::from_str(&format!("{COOKIE}={said}")).ok())
                .all(|line| { !opens(&HeaderMap::from_iter([(header::COOKIE, line)])) })
        );
        assert!(!opens(&HeaderMap::new()) && Keyhole::new(None).opens(&HeaderMap::new(), from).unwrap());
        assert!(!cookie.contains(TOKEN));
        let [longest, longer] = [Options::LONGEST_TOKEN, Options::LONGEST_TOKEN + 1].map(|length| "x".repeat(length));
        let of = |token: &str| Keyhole::new(Some(token)).opens(&with(header::AUTHORIZATION, &format!("Bearer {token}")), from).unwrap();
        assert_eq!((of(&longest), of(&longer)), (true, false), "what is longer is not even hashed");
    }
}
