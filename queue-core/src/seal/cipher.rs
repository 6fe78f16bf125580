//! Encrypts (seals) and decrypts (opens) payloads, and hashes keys that are computed from payloads.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroize as _;

use super::{
    Nonce, OpenError, SealScope,
    format::{SealedPayload, format_payload},
    keyring::{Secret, find},
};

/// Length of the nonce in bytes. The nonce precedes the ciphertext.
const NONCE: usize = 24;

/// Seals the JSON text of a payload with the current key of the keyring.
pub(crate) fn seal(clear: &str, keyring: &str, scope: SealScope<'_>, nonce: Nonce) -> Result<String, String> {
    let keys = find(keyring).ok_or_else(|| missing_keyring(keyring))?;
    let (key, secret) = keys.current();
    let aad = associated_data(scope, keyring, key);
    let nonce = match nonce {
        Nonce::Random => XNonce::try_generate().map_err(|error| format!("cannot get random bytes from the system: {error}"))?,
        Nonce::FromPayload => derive_nonce(secret, &aad, clear),
    };
    let payload = Payload { msg: clear.as_bytes(), aad: aad.as_bytes() };
    let sealed = cipher(secret).encrypt(&nonce, payload).map_err(|_| "the payload is too large for the cipher".to_owned())?;
    let mut data = nonce.to_vec();
    data.extend(sealed);
    Ok(format_payload(keyring, key, &URL_SAFE_NO_PAD.encode(data)))
}

/// Opens a sealed payload and returns its JSON text. Returns `None` if the payload is not sealed.
pub(crate) fn open(payload: &str, scope: SealScope<'_>) -> Result<Option<String>, OpenError> {
    let (keyring, key, data) = match SealedPayload::parse(payload) {
        None => return Ok(None),
        Some(SealedPayload::Supported { keyring, key, data }) => (keyring, key, data),
        Some(SealedPayload::Unsupported { form }) => {
            return Err(OpenError::Unavailable(format!(
                "it is sealed in format {form}, which this release does not support; deploy one that does"
            )));
        }
        Some(SealedPayload::Malformed) => return Err(OpenError::Invalid("the header of the sealed payload was changed".to_owned())),
    };
    let name = |name: &str| name.chars().take(64).collect::<String>().escape_debug().to_string();
    let keys = find(keyring).ok_or_else(|| OpenError::Unavailable(missing_keyring(&name(keyring))))?;
    let Some(secret) = keys.find(key) else {
        let (key, keyring) = (name(key), name(keyring));
        return Err(OpenError::Unavailable(format!(
            "it is sealed with the key `{key}`, which the keyring `{keyring}` of this process lacks; add it with `Keyring::older`"
        )));
    };
    let aad = associated_data(scope, keyring, key);
    let opened = URL_SAFE_NO_PAD.decode(data).ok().and_then(|data| {
        let (nonce, sealed) = data.split_at_checked(NONCE)?;
        let payload = Payload { msg: sealed, aad: aad.as_bytes() };
        cipher(secret).decrypt(&XNonce::try_from(nonce).ok()?, payload).ok()
    });
    let Some(opened) = opened else {
        return Err(OpenError::Invalid(format!(
            "the key `{key}` of the keyring `{keyring}` differs from the one that sealed it, or the payload was changed, \
             or copied from another job type, version or store"
        )));
    };
    // Only UTF-8 texts are sealed, so invalid UTF-8 is an error.
    String::from_utf8(opened).map(Some).map_err(|error| {
        error.into_bytes().zeroize();
        OpenError::Invalid("the sealed content is not text".to_owned())
    })
}

/// Hashes a key computed from a payload, with the hashing secret of the keyring. The hash includes `what`, the kind of key.
pub(crate) fn hash_key(what: &str, key: &str, keyring: &str) -> Result<String, String> {
    let keys = find(keyring).ok_or_else(|| missing_keyring(keyring))?;
    let Some(secret) = keys.hasher() else {
        return Err(format!(
            "{what} is computed from it, and the keyring `{keyring}` has no secret to hash it with; set one with `Keyring::hashing`, \
             the same in all processes and permanently"
        ));
    };
    Ok(URL_SAFE_NO_PAD.encode(mac(secret, &["queue-sealed key", what, key])))
}

fn missing_keyring(keyring: &str) -> String {
    format!("this process has no keyring `{keyring}`; set it with `queue_core::use_keyring` when the program starts")
}

fn cipher(secret: &Secret) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(secret.bytes().into())
}

/// Returns the associated data of a payload. No part contains NUL, so different parts never yield the same text.
fn associated_data(scope: SealScope<'_>, keyring: &str, key: &str) -> String {
    ["queue-sealed/1", scope.store.schema(), scope.stored, keyring, key].join("\0")
}

/// Derives a nonce from the payload. Two nonces are equal only if the payload, the associated data and the secret are equal.
fn derive_nonce(secret: &Secret, aad: &str, clear: &str) -> XNonce {
    let mac = mac(secret, &["queue-sealed nonce", aad, clear]);
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(&mac[..NONCE]);
    nonce
}

fn mac(secret: &Secret, parts: &[&str]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("HMAC accepts keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::{
        super::keyring::{Keyring, use_keyring},
        *,
    };
    use crate::schema::Store;

    const CLEAR: &str = r#"{"card": "hunter2"}"#;

    fn scope(stored: &str) -> SealScope<'_> {
        SealScope { store: Store::default(), stored }
    }

    fn secret(byte: u8) -> Secret {
        Secret::new([byte; 32])
    }

    fn why(unopened: Result<Option<String>, OpenError>) -> String {
        match unopened.unwrap_err() {
            OpenError::Invalid(why) => why,
            other @ OpenError::Unavailable(_) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sealed_payload_opens_only_in_its_scope() {
        use_keyring("cipher_places", Keyring::new("one", secret(1)).older("two", secret(2))).unwrap();
        let sealed = seal(CLEAR, "cipher_places", scope("pay@2"), Nonce::Random).unwrap();
        assert!(!sealed.contains("hunter2") && sealed.starts_with("\"queue-sealed/1/cipher_places/one/"), "{sealed}");
        assert_eq!(open(&sealed, scope("pay@2")).unwrap().as_deref(), Some(CLEAR));
        assert_eq!(open(CLEAR, scope("pay@2")).unwrap(), None, "not sealed");
        for elsewhere in ["pay", "pay@3", "pay@2\0", "Pay@2", ""] {
            assert!(why(open(&sealed, scope(elsewhere))).contains("another job type, version or store"), "{elsewhere}");
        }
        let other = SealScope { store: Store::new("other").unwrap(), stored: "pay@2" };
        why(open(&sealed, other));
        // The payload cannot be opened if the key name in the text is replaced with the name of another existing key.
        why(open(&sealed.replace("/one/", "/two/"), scope("pay@2")));
        let again = seal(CLEAR, "cipher_places", scope("pay@2"), Nonce::Random).unwrap();
        assert_ne!(again, sealed, "equal payloads cannot be recognized");
    }

    #[test]
    fn a_changed_or_truncated_payload_does_not_open_and_errors_do_not_show_it() {
        use_keyring("cipher_bytes", Keyring::new("k", secret(3))).unwrap();
        let sealed = seal(CLEAR, "cipher_bytes", scope("pay"), Nonce::Random).unwrap();
        let from = sealed.rfind('/').unwrap() + 1;
        for at in from..sealed.len() - 1 {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let error = why(open(std::str::from_utf8(&changed).unwrap(), scope("pay")));
            assert!(!error.contains("hunter2") && !error.contains(&sealed[from..from + 8]), "{error}");
            why(open(&format!("{}\"", &sealed[..at]), scope("pay")));
        }
    }

    #[test]
    fn a_nonce_from_the_payload_is_deterministic() {
        use_keyring("cipher_alike", Keyring::new("k", secret(4))).unwrap();
        let alike = |clear, stored| seal(clear, "cipher_alike", scope(stored), Nonce::FromPayload).unwrap();
        assert_eq!(alike(CLEAR, "pay"), alike(CLEAR, "pay"));
        assert_eq!(open(&alike(CLEAR, "pay"), scope("pay")).unwrap().as_deref(), Some(CLEAR));
        let nonce = |sealed: String| sealed[sealed.rfind('/').unwrap()..].chars().take(33).collect::<String>();
        assert_ne!(nonce(alike(CLEAR, "pay")), nonce(alike("{}", "pay")), "a nonce is for one payload");
        assert_ne!(nonce(alike(CLEAR, "pay")), nonce(alike(CLEAR, "pay@2")));
    }

    #[test]
    fn a_key_is_hashed_by_a_secret_of_its_own() {
        use_keyring("cipher_hash", Keyring::new("k", secret(5)).hashing(secret(6))).unwrap();
        let hashed = |what, key| hash_key(what, key, "cipher_hash").unwrap();
        assert_eq!(hashed("the key", "ada"), hashed("the key", "ada"));
        let others = [hashed("the key", "adb"), hashed("the keya", "da"), hashed("another", "ada")];
        assert!(!others.contains(&hashed("the key", "ada")) && !hashed("the key", "ada").contains("ada"));
        let before = hashed("the key", "ada");
        use_keyring("cipher_hash", Keyring::new("new", secret(7)).older("k", secret(5)).hashing(secret(6))).unwrap();
        assert_eq!(hashed("the key", "ada"), before, "the hash does not depend on the sealing keys");
        use_keyring("cipher_hash", Keyring::new("new", secret(7))).unwrap();
        assert!(hash_key("the key", "ada", "cipher_hash").unwrap_err().contains("`Keyring::hashing`"));
    }
}
