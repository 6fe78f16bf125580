//! Text format of a sealed payload, which is a JSON string. No struct with named fields deserializes from a string. A release that does
//! not support sealing therefore cannot mistake a sealed payload for an empty payload.

/// Prefix of every sealed payload.
const MARK: &str = "\"queue-sealed/";

/// Version of the format that this release writes.
#[cfg(feature = "seal")]
const FORM: &str = "1";

/// Returns whether the JSON text of a payload is sealed. An unsealed payload could have the same prefix only if the whole payload is a
/// string.
pub(crate) fn is_sealed(payload: &str) -> bool {
    payload.starts_with(MARK)
}

/// Formats the JSON text of a sealed payload. The three parts can be joined with slashes, because none of them contains a slash.
#[cfg(feature = "seal")]
pub(super) fn format_payload(keyring: &str, key: &str, data: &str) -> String {
    format!("{MARK}{FORM}/{keyring}/{key}/{data}\"")
}

/// Sealed payload, parsed into its parts.
#[cfg(feature = "seal")]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SealedPayload<'a> {
    /// Payload in the format that this release supports.
    Supported { keyring: &'a str, key: &'a str, data: &'a str },
    /// Payload in a format that this release does not support.
    Unsupported { form: &'a str },
    /// Payload with the prefix of a sealed payload, but without a valid format.
    Malformed,
}

#[cfg(feature = "seal")]
impl<'a> SealedPayload<'a> {
    /// Parses a payload. Returns `None` if the payload is not sealed.
    pub(super) fn parse(payload: &'a str) -> Option<Self> {
        let rest = payload.strip_prefix(MARK)?;
        let Some(rest) = rest.strip_suffix('"') else { return Some(Self::Malformed) };
        let mut parts = rest.split('/');
        let form = parts.next().unwrap_or_default();
        if form != FORM {
            let is_number = (1..=4).contains(&form.len()) && form.bytes().all(|byte| byte.is_ascii_digit());
            return Some(if is_number { Self::Unsupported { form } } else { Self::Malformed });
        }
        Some(match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(keyring), Some(key), Some(data), None) => Self::Supported { keyring, key, data },
            _ => Self::Malformed,
        })
    }
}

#[cfg(all(test, feature = "seal"))]
mod tests {
    use super::*;

    #[test]
    fn sealed_unsealed_and_later_formats_are_distinguished() {
        let sealed = format_payload("customers", "2026-05", "AAAA_-");
        assert_eq!(sealed, r#""queue-sealed/1/customers/2026-05/AAAA_-""#);
        assert_eq!(SealedPayload::parse(&sealed), Some(SealedPayload::Supported { keyring: "customers", key: "2026-05", data: "AAAA_-" }));
        for clear in [r#"{"to": "ada"}"#, "null", r#""queue""#, r#"["queue-sealed/1/a/b/c"]"#, ""] {
            assert_eq!(SealedPayload::parse(clear), None, "{clear}");
        }
        assert_eq!(SealedPayload::parse(r#""queue-sealed/2/what ever""#), Some(SealedPayload::Unsupported { form: "2" }));
        for broken in [
            r#""queue-sealed/"#,
            r#""queue-sealed/1/a/b/c"#,
            r#""queue-sealed/1/a/b""#,
            r#""queue-sealed/1/a/b/c/d""#,
            r#""queue-sealed/x/a""#,
        ] {
            assert_eq!(SealedPayload::parse(broken), Some(SealedPayload::Malformed), "{broken}");
        }
    }
}
