//! Sealing and opening, and the hashes of keys that payloads make.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use zeroize::Zeroize as _;

use super::{
    Bound, Nonce, Unopened,
    form::{Sealed, text},
    keyring::{Secret, find},
};

/// So many bytes of a nonce stand before what is sealed.
const NONCE: usize = 24;

/// The payload's JSON text, sealed with the current key of this keyring; or why it is not.
pub(crate) fn seal(clear: &str, keyring: &str, bound: Bound<'_>, nonce: Nonce) -> Result<String, String> {
    let keys = find(keyring).ok_or_else(|| lacking(keyring))?;
    let (key, secret) = keys.current();
    let aad = associated(bound, keyring, key);
    let nonce = match nonce {
        Nonce::Random => XNonce::try_generate().map_err(|error| format!("the system has no random bytes: {error}"))?,
        Nonce::OfPayload => nonce_of(secret, &aad, clear),
    };
    let payload = Payload { msg: clear.as_bytes(), aad: aad.as_bytes() };
    let sealed = cipher(secret).encrypt(&nonce, payload).map_err(|_| "the cipher takes no payload of this size".to_owned())?;
    let mut data = nonce.to_vec();
    data.extend(sealed);
    Ok(text(keyring, key, &URL_SAFE_NO_PAD.encode(data)))
}

/// The JSON text that was sealed; `None` if the payload is in clear.
pub(crate) fn open(payload: &str, bound: Bound<'_>) -> Result<Option<String>, Unopened> {
    let (keyring, key, data) = match Sealed::parse(payload) {
        None => return Ok(None),
        Some(Sealed::Known { keyring, key, data }) => (keyring, key, data),
        Some(Sealed::Other { form }) => {
            return Err(Unopened::Here(format!("it is sealed in form {form}, which this release does not know; deploy one that does")));
        }
        Some(Sealed::Broken) => return Err(Unopened::Ever("what says how it is sealed was changed".to_owned())),
    };
    let name = |name: &str| name.chars().take(64).collect::<String>().escape_debug().to_string();
    let keys = find(keyring).ok_or_else(|| Unopened::Here(lacking(&name(keyring))))?;
    let Some(secret) = keys.find(key) else {
        let (key, keyring) = (name(key), name(keyring));
        return Err(Unopened::Here(format!(
            "it is sealed with the key `{key}`, which the keyring `{keyring}` of this process does not have; give it with `Keyring::older`"
        )));
    };
    let aad = associated(bound, keyring, key);
    let opened = URL_SAFE_NO_PAD.decode(data).ok().and_then(|data| {
        let (nonce, sealed) = data.split_at_checked(NONCE)?;
        let payload = Payload { msg: sealed, aad: aad.as_bytes() };
        cipher(secret).decrypt(&XNonce::try_from(nonce).ok()?, payload).ok()
    });
    let Some(opened) = opened else {
        return Err(Unopened::Ever(format!(
            "either the key `{key}` of the keyring `{keyring}` is another here than where it was sealed, or it was changed, \
             or brought here from another job type, version or store"
        )));
    };
    // What was sealed was a text.
    String::from_utf8(opened).map(Some).map_err(|error| {
        error.into_bytes().zeroize();
        Unopened::Ever("what was sealed is no text".to_owned())
    })
}

/// A key that a payload makes, hashed by the secret of this keyring; `what` it is, is hashed with it.
pub(crate) fn hash_key(what: &str, key: &str, keyring: &str) -> Result<String, String> {
    let keys = find(keyring).ok_or_else(|| lacking(keyring))?;
    let Some(secret) = keys.hasher() else {
        return Err(format!(
            "{what} is made of it, and the keyring `{keyring}` has no secret to hash that with; give it one with `Keyring::hashing`, \
             the same in all processes and for good"
        ));
    };
    Ok(URL_SAFE_NO_PAD.encode(mac(secret, &["queue-sealed key", what, key])))
}

fn lacking(keyring: &str) -> String {
    format!("the keyring `{keyring}` is not known to this process; give it with `queue_core::use_keyring` when the program starts")
}

fn cipher(secret: &Secret) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(secret.bytes().into())
}

/// No part has a NUL in it, so no two of them are the same by other parts.
fn associated(bound: Bound<'_>, keyring: &str, key: &str) -> String {
    ["queue-sealed/1", bound.store.schema(), bound.stored, keyring, key].join("\0")
}

/// Equal for equal payloads of one place under one key only.
fn nonce_of(secret: &Secret, aad: &str, clear: &str) -> XNonce {
    let mac = mac(secret, &["queue-sealed nonce", aad, clear]);
    let mut nonce = XNonce::default();
    nonce.copy_from_slice(&mac[..NONCE]);
    nonce
}

fn mac(secret: &Secret, parts: &[&str]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("a key of any length will do");
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

    fn bound(stored: &str) -> Bound<'_> {
        Bound { store: Store::default(), stored }
    }

    fn secret(byte: u8) -> Secret {
        Secret::new([byte; 32])
    }

    fn why(unopened: Result<Option<String>, Unopened>) -> String {
        match unopened.unwrap_err() {
            Unopened::Ever(why) => why,
            other @ Unopened::Here(_) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_sealed_is_opened_where_it_belongs_and_nowhere_else() {
        use_keyring("cipher_places", Keyring::new("one", secret(1)).older("two", secret(2))).unwrap();
        let sealed = seal(CLEAR, "cipher_places", bound("pay@2"), Nonce::Random).unwrap();
        assert!(!sealed.contains("hunter2") && sealed.starts_with("\"queue-sealed/1/cipher_places/one/"), "{sealed}");
        assert_eq!(open(&sealed, bound("pay@2")).unwrap().as_deref(), Some(CLEAR));
        assert_eq!(open(CLEAR, bound("pay@2")).unwrap(), None, "this is in clear");
        for elsewhere in ["pay", "pay@3", "pay@2\0", "Pay@2", ""] {
            assert!(why(open(&sealed, bound(elsewhere))).contains("another job type, version or store"), "{elsewhere}");
        }
        let other = Bound { store: Store::new("other").unwrap(), stored: "pay@2" };
        why(open(&sealed, other));
        // Under the name of a key that is there, too.
        why(open(&sealed.replace("/one/", "/two/"), bound("pay@2")));
        let again = seal(CLEAR, "cipher_places", bound("pay@2"), Nonce::Random).unwrap();
        assert_ne!(again, sealed, "nobody sees that two are equal");
    }

    #[test]
    fn no_byte_of_a_sealed_payload_can_be_changed_or_left_out_and_no_error_shows_it() {
        use_keyring("cipher_bytes", Keyring::new("k", secret(3))).unwrap();
        let sealed = seal(CLEAR, "cipher_bytes", bound("pay"), Nonce::Random).unwrap();
        let from = sealed.rfind('/').unwrap() + 1;
        for at in from..sealed.len() - 1 {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let said = why(open(std::str::from_utf8(&changed).unwrap(), bound("pay")));
            assert!(!said.contains("hunter2") && !said.contains(&sealed[from..from + 8]), "{said}");
            why(open(&format!("{}\"", &sealed[..at]), bound("pay")));
        }
    }

    #[test]
    fn a_nonce_of_the_payload_makes_one_text_of_one_payload_in_one_place() {
        use_keyring("cipher_alike", Keyring::new("k", secret(4))).unwrap();
        let alike = |clear, stored| seal(clear, "cipher_alike", bound(stored), Nonce::OfPayload).unwrap();
        assert_eq!(alike(CLEAR, "pay"), alike(CLEAR, "pay"));
        assert_eq!(open(&alike(CLEAR, "pay"), bound("pay")).unwrap().as_deref(), Some(CLEAR));
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
        assert_eq!(hashed("the key", "ada"), before, "it does not change with the keys that seal");
        use_keyring("cipher_hash", Keyring::new("new", secret(7))).unwrap();
        assert!(hash_key("the key", "ada", "cipher_hash").unwrap_err().contains("`Keyring::hashing`"));
    }
}
