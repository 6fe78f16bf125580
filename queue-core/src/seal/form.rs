//! How a sealed payload is stored: one JSON text, which no struct with named fields is read from, so that a release that knows nothing of it does not
//! take it for a payload with nothing in it.

/// Begins every one.
const MARK: &str = "\"queue-sealed/";

/// Of which form this release writes them.
#[cfg(feature = "seal")]
const FORM: &str = "1";

/// Whether a payload's JSON text is sealed. The same text could be a payload in clear only of a type that is nothing but a text.
pub(crate) fn is_sealed(payload: &str) -> bool {
    payload.starts_with(MARK)
}

/// The JSON text of a sealed payload. No name has a slash in it, nor has what is encoded.
#[cfg(feature = "seal")]
pub(super) fn text(keyring: &str, key: &str, data: &str) -> String {
    format!("{MARK}{FORM}/{keyring}/{key}/{data}\"")
}

/// The parts of a sealed payload.
#[cfg(feature = "seal")]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sealed<'a> {
    /// Of the form that this release knows.
    Known { keyring: &'a str, key: &'a str, data: &'a str },
    /// Of another.
    Other { form: &'a str },
    /// Of none.
    Broken,
}

#[cfg(feature = "seal")]
impl<'a> Sealed<'a> {
    /// `None` if the payload is in clear.
    pub(super) fn parse(payload: &'a str) -> Option<Self> {
        let rest = payload.strip_prefix(MARK)?;
        let Some(rest) = rest.strip_suffix('"') else { return Some(Self::Broken) };
        let mut parts = rest.split('/');
        let form = parts.next().unwrap_or_default();
        if form != FORM {
            let is_number = (1..=4).contains(&form.len()) && form.bytes().all(|byte| byte.is_ascii_digit());
            return Some(if is_number { Self::Other { form } } else { Self::Broken });
        }
        Some(match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(keyring), Some(key), Some(data), None) => Self::Known { keyring, key, data },
            _ => Self::Broken,
        })
    }
}

#[cfg(all(test, feature = "seal"))]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_payload_is_told_from_one_in_clear_and_from_one_of_a_later_form() {
        let sealed = text("customers", "2026-05", "AAAA_-");
        assert_eq!(sealed, r#""queue-sealed/1/customers/2026-05/AAAA_-""#);
        assert_eq!(Sealed::parse(&sealed), Some(Sealed::Known { keyring: "customers", key: "2026-05", data: "AAAA_-" }));
        for clear in [r#"{"to": "ada"}"#, "null", r#""queue""#, r#"["queue-sealed/1/a/b/c"]"#, ""] {
            assert_eq!(Sealed::parse(clear), None, "{clear}");
        }
        assert_eq!(Sealed::parse(r#""queue-sealed/2/what ever""#), Some(Sealed::Other { form: "2" }));
        for broken in [
            r#""queue-sealed/"#,
            r#""queue-sealed/1/a/b/c"#,
            r#""queue-sealed/1/a/b""#,
            r#""queue-sealed/1/a/b/c/d""#,
            r#""queue-sealed/x/a""#,
        ] {
            assert_eq!(Sealed::parse(broken), Some(Sealed::Broken), "{broken}");
        }
    }
}
