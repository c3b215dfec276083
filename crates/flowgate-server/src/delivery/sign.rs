//! Signatures: by them a receiver knows that a request comes from this server, and that its body is as it was sent.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    digest::{SHA256, digest},
    hmac,
};
use serde::{Deserialize, Serialize};

use crate::{
    message::{Space, put_hex},
    office::random_text,
};

/// Both receivers' libraries insist on it.
const ISSUER: &str = "Upstash";
/// `{"alg":"HS256","typ":"JWT"}`, encoded.
const HEAD: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
/// How long a signature is good for, in seconds.
const GOOD_FOR: u64 = 300;

/// The key that signs, and the one that will after the next rotation. Receivers accept both.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SigningKeys {
    pub(crate) current: String,
    pub(crate) next: String,
}

/// Keys are secrets: they are not for logs.
impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKeys")
    }
}

impl SigningKeys {
    /// The keys of a namespace: made of these, so that they change with them, and of no use to find them.
    #[must_use]
    pub(crate) fn within(self, space: &Space) -> Self {
        if space.is_root() {
            return self;
        }
        let made = |key: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
            format!("sig_{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, space.as_str().as_bytes())))
        };
        SigningKeys { current: made(&self.current), next: made(&self.next) }
    }

    /// What signs with the current one.
    pub(crate) fn signer(&self) -> Signer {
        Signer(hmac::Key::new(hmac::HMAC_SHA256, self.current.as_bytes()))
    }
}

/// Signs. What does not depend on the request is made once.
pub(crate) struct Signer(hmac::Key);

impl Signer {
    /// A token (JWT, HS256) over this URL and body. `jti` is unique for each; `now` is in seconds.
    pub(crate) fn sign(&self, url: &str, body: &[u8], jti: &str, now: u64) -> String {
        let mut claims = Vec::with_capacity(url.len() + jti.len() + 192);
        put_claims(&mut claims, url, body, jti, now).expect("a Vec takes what is written");
        let mut token = Vec::with_capacity(HEAD.len() + claims.len() * 4 / 3 + 64);
        token.extend_from_slice(HEAD.as_bytes());
        put_encoded(&mut token, &claims);
        let signature = hmac::sign(&self.0, &token);
        put_encoded(&mut token, signature.as_ref());
        String::from_utf8(token).expect("base64 and dots are text")
    }
}

/// The next part of a token. It is written where it will stand: `encode_string` goes by a buffer of its own.
fn put_encoded(token: &mut Vec<u8>, part: &[u8]) {
    token.push(b'.');
    let from = token.len();
    token.resize(from + part.len() * 4 / 3 + 4, 0);
    let length = URL_SAFE_NO_PAD.encode_slice(part, &mut token[from..]).expect("four bytes for three fit");
    token.truncate(from + length);
}

/// An id that no other token has: random for each process, and counted there. To ask the system for each costs a call of it.
pub(super) fn token_id() -> String {
    static PROCESS: LazyLock<String> = LazyLock::new(|| random_text(20));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut id = String::with_capacity(4 + PROCESS.len() + 16);
    id.push_str("jwt_");
    id.push_str(&PROCESS);
    put_hex(&mut id, COUNT.fetch_add(1, Ordering::Relaxed));
    id
}

/// The claims as JSON. Of the body, a hash; the `jti` has nothing in it that JSON would escape.
fn put_claims(text: &mut Vec<u8>, url: &str, body: &[u8], jti: &str, now: u64) -> serde_json::Result<()> {
    text.extend_from_slice(br#"{"iss":""#);
    text.extend_from_slice(ISSUER.as_bytes());
    text.extend_from_slice(br#"","sub":"#);
    serde_json::to_writer(&mut *text, url)?;
    text.extend_from_slice(br#","exp":"#);
    serde_json::to_writer(&mut *text, &(now + GOOD_FOR))?;
    text.extend_from_slice(br#","nbf":0,"iat":"#);
    serde_json::to_writer(&mut *text, &now)?;
    text.extend_from_slice(br#","jti":""#);
    text.extend_from_slice(jti.as_bytes());
    text.extend_from_slice(br#"","body":""#);
    let (hash, mut encoded) = (digest(&SHA256, body), [0; 43]);
    let length = URL_SAFE_NO_PAD.encode_slice(hash, &mut encoded).unwrap_or_default();
    text.extend_from_slice(&encoded[..length]);
    text.extend_from_slice(br#""}"#);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_signed_over_url_and_body() {
        let keys = SigningKeys { current: "sig_one".into(), next: "sig_two".into() };
        let token = keys.signer().sign("https://example.com/", b"body", "jwt_1", 1_000);
        let parts: Vec<&str> = token.split('.').collect();
        let head = URL_SAFE_NO_PAD.decode(parts[0]).expect("base64");
        assert_eq!(head, br#"{"alg":"HS256","typ":"JWT"}"#);
        let claims = URL_SAFE_NO_PAD.decode(parts[1]).expect("base64");
        let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
        assert_eq!(claims["iss"], "Upstash");
        assert_eq!(claims["sub"], "https://example.com/");
        assert_eq!((claims["exp"].as_u64(), claims["nbf"].as_u64()), (Some(1_300), Some(0)));
        assert_eq!(claims["body"], "Iw2DWNyOiJC0xY3utikS7i8gNXrpKlzIYbmOaP4xrLU");
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"sig_one");
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).expect("base64");
        assert!(hmac::verify(&key, format!("{}.{}", parts[0], parts[1]).as_bytes(), &signature).is_ok());
        assert_eq!(format!("{keys:?}"), "SigningKeys");
        let (one, next) = (token_id(), token_id());
        assert!(one != next && one.starts_with("jwt_") && one.len() > 20, "{one} {next}");
    }
}
