//! Tokens and signing keys: made here, kept in the store, compared in constant time, never written to a log.

use std::{
    mem,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowgate_core::OptionError;
use flowgate_tasks::store::{Document, Shelf, StoreError};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::trouble::{store_answers, store_failed};
use crate::{
    clock,
    delivery::{Signer, SigningKeys},
    message::Space,
};

/// Known to everybody: for development on one's own machine, where the vendor's clients look for it.
pub(crate) const DEV_TOKEN: &str = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";
const DEV_KEYS: (&str, &str) = ("sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r", "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs");
const TOKEN: &str = "token";
const SERVER: &str = "server";
const KEYS: &str = "signing-keys";
/// Apart from the others: a store that was tried out in development must never sign with what everybody knows.
const KEYS_IN_DEVELOPMENT: &str = "signing-keys-in-development";
/// How soon a server knows what another one of the fleet changed.
const REFRESH: Duration = Duration::from_secs(2);
const MOST_TOKENS: u32 = 1000;
/// Stands between a user and the namespace that its token is for. No namespace has one in its name, and a URL has it as it is.
const BEHIND_USER: char = '~';
/// So much of a hash is enough to call a token by.
const SHORT: usize = 12;

/// A token, as it is told: everything but itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenNote {
    pub(crate) name: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) created: u64,
    /// Where it can be used.
    #[serde(default, skip_serializing_if = "Space::is_root")]
    pub(crate) space: Space,
}

/// What this server knows of them.
pub(crate) struct Secrets {
    store: Arc<dyn Shelf>,
    is_dev: bool,
    known: RwLock<Known>,
}

struct Known {
    tokens: Vec<([u8; 32], Space)>,
    keys: SigningKeys,
    signer: Arc<Signer>,
}

impl Secrets {
    /// Reads them from the store; makes signing keys, if there are none.
    pub(crate) async fn open(store: Arc<dyn Shelf>, is_dev: bool) -> Result<Self, StoreError> {
        let fresh = if is_dev {
            SigningKeys { current: DEV_KEYS.0.to_owned(), next: DEV_KEYS.1.to_owned() }
        } else {
            SigningKeys { current: signing_key(), next: signing_key() }
        };
        // Whoever is first decides; in development everybody has the same.
        write_keys(&*store, &fresh, is_dev, (!is_dev).then_some(0)).await?;
        let known = read(&*store, is_dev).await?;
        Ok(Secrets { store, is_dev, known: RwLock::new(known) })
    }

    /// Keeps up with what other servers change, until dropped.
    pub(crate) async fn keep_up(self: Arc<Self>) {
        let mut is_away = false;
        loop {
            tokio::time::sleep(REFRESH).await;
            // A store that cannot be reached changes nothing.
            match self.refresh().await {
                Ok(()) => store_answers(mem::take(&mut is_away)),
                Err(error) => {
                    is_away = true;
                    store_failed(&error);
                }
            }
        }
    }

    /// Reads again what the store has.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let known = read(&*self.store, self.is_dev).await?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// The namespace of a token, if it is one of the server. How long it takes does not depend on how much of it is right.
    pub(crate) fn accepts(&self, token: &str) -> Option<Space> {
        let hash = hash(token);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.tokens.iter().fold(
            None,
            |found, (known, space)| {
                if same(known, &hash) { Some(space) } else { found }
            },
        );
        found.cloned()
    }

    /// The name under which a token for the whole server is kept, which tells nothing of it. `None`: it is none of ours, or one
    /// of a namespace.
    pub(crate) fn name_of(&self, token: &str) -> Option<String> {
        self.accepts(token).filter(Space::is_root).map(|_| hex(&hash(token)))
    }

    /// Whether the token that is kept under this name still is one.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        unhex(name)
            .is_some_and(|hash| known.tokens.iter().any(|(known, space)| *known == hash && space.is_root()))
    }

    /// The namespace that a webhook leads to, by the user in its URL: that of the token it was made with. `None`: there is no
    /// token for it.
    pub(crate) fn hook_space(&self, user: &str) -> Option<Space> {
        let Some((_, name)) = user.rsplit_once(BEHIND_USER) else { return Some(Space::default()) };
        let named = Space::read(name).ok()?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.tokens.iter().any(|(_, space)| *space == named).then_some(named)
    }

    /// Whether the public token for development is accepted.
    pub(crate) fn is_dev(&self) -> bool {
        self.is_dev
    }

    /// Whether anybody can use the API.
    pub(crate) fn has_tokens(&self) -> bool {
        !self.known.read().unwrap_or_else(PoisonError::into_inner).tokens.is_empty()
    }

    /// The keys that sign.
    pub(crate) fn keys(&self) -> SigningKeys {
        self.known.read().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// What signs with them.
    pub(crate) fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).signer)
    }

    /// The next key becomes the current one, and a new one the next.
    pub(crate) async fn rotate(&self) -> Result<SigningKeys, StoreError> {
        loop {
            let found = self.store.document(SERVER.into(), keys_name(self.is_dev)).await?;
            // As it is there: another server may have changed it since this one looked.
            let version = found.as_ref().and_then(|found| found.version);
            let known = found.and_then(|found| serde_json::from_slice::<SigningKeys>(&found.body).ok());
            let keys =
                SigningKeys { current: known.unwrap_or_else(|| self.keys()).next, next: signing_key() };
            let is_written = write_keys(&*self.store, &keys, self.is_dev, version).await?;
            self.refresh().await?;
            if is_written {
                return Ok(keys);
            }
        }
    }

    /// Makes a token. It is told once, here: what is kept is its hash.
    pub(crate) async fn create(store: &dyn Shelf, name: &str, space: Space) -> Result<String, StoreError> {
        // The clients write the user into the URLs of webhooks, which come without a token.
        let user = match space.is_root() {
            true => random_text(12),
            false => format!("{}{BEHIND_USER}{}", random_text(12), space.as_str()),
        };
        let text = json!({ "UserID": user, "Password": random_text(32) }).to_string();
        let token = STANDARD.encode(text);
        Self::keep(store, name, &token, space).await?;
        Ok(token)
    }

    /// Keeps a token that was made elsewhere.
    pub(crate) async fn keep(
        store: &dyn Shelf,
        name: &str,
        token: &str,
        space: Space,
    ) -> Result<(), StoreError> {
        let found = store.documents(TOKEN.into(), String::new(), MOST_TOKENS).await?;
        let is_known = found.iter().any(|found| found.name == hex(&hash(token)));
        if found.len() >= MOST_TOKENS as usize && !is_known {
            let accepted = format!("up to {MOST_TOKENS}; revoke one with `flowgate token revoke`");
            return Err(OptionError::new("the number of tokens", MOST_TOKENS + 1, accepted).into());
        }
        let note = TokenNote { name: name.to_owned(), created: clock::now(), space };
        let body = serde_json::to_vec(&note).expect("a note is plain data");
        store
            .put_document(Document { kind: TOKEN.into(), name: hex(&hash(token)), body, version: None })
            .await?;
        Ok(())
    }

    /// The tokens of a store: the beginning of their hashes, by which they are called, and what is noted of them.
    pub(crate) async fn list(store: &dyn Shelf) -> Result<Vec<(String, TokenNote)>, StoreError> {
        let found = store.documents(TOKEN.into(), String::new(), MOST_TOKENS).await?;
        let each = found.into_iter().filter_map(|found| {
            let note = serde_json::from_slice(&found.body).ok()?;
            Some((found.name.get(..SHORT)?.to_owned(), note))
        });
        Ok(each.collect())
    }

    /// Forgets the one token whose hash begins so. `false`: there is none, or more than one.
    pub(crate) async fn revoke(store: &dyn Shelf, id: &str) -> Result<bool, StoreError> {
        let found = store.documents(TOKEN.into(), String::new(), MOST_TOKENS).await?;
        let mut named = found.into_iter().filter(|found| id.len() >= SHORT && found.name.starts_with(id));
        match (named.next(), named.next()) {
            (Some(one), None) => store.remove_document(TOKEN.into(), one.name).await,
            _ => Ok(false),
        }
    }
}

async fn read(store: &dyn Shelf, is_dev: bool) -> Result<Known, StoreError> {
    let documents = store.documents(TOKEN.into(), String::new(), MOST_TOKENS).await?;
    // A note that cannot be read is no token: it might have been for a namespace.
    let token = |document: &Document| {
        let note: TokenNote = serde_json::from_slice(&document.body).ok()?;
        Some((unhex(&document.name)?, note.space))
    };
    let mut tokens: Vec<([u8; 32], Space)> = documents.iter().filter_map(token).collect();
    if is_dev {
        tokens.push((hash(DEV_TOKEN), Space::default()));
    }
    let keys = store.document(SERVER.into(), keys_name(is_dev)).await?;
    let keys = keys.and_then(|keys| serde_json::from_slice(&keys.body).ok());
    let missing = || StoreError::Database {
        doing: "reading the signing keys",
        why: "they are not there, or cannot be read".to_owned(),
    };
    let keys: SigningKeys = keys.ok_or_else(missing)?;
    let signer = Arc::new(keys.signer());
    Ok(Known { tokens, keys, signer })
}

fn keys_name(is_dev: bool) -> String {
    if is_dev { KEYS_IN_DEVELOPMENT } else { KEYS }.to_owned()
}

async fn write_keys(
    store: &dyn Shelf,
    keys: &SigningKeys,
    is_dev: bool,
    version: Option<i64>,
) -> Result<bool, StoreError> {
    let body = serde_json::to_vec(keys).expect("keys are plain data");
    store.put_document(Document { kind: SERVER.into(), name: keys_name(is_dev), body, version }).await
}

/// The name under which a secret is kept: its hash.
pub(crate) fn kept_as(secret: &str) -> String {
    hex(&hash(secret))
}

/// Whether two secrets are the same. How long it takes does not depend on how much of them is.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    same(&hash(one), &hash(other))
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn signing_key() -> String {
    format!("sig_{}", random_text(28))
}

/// Letters and digits that nobody can guess.
pub(crate) fn random_text(length: usize) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| LETTERS[usize::from(byte % 32)] as char).collect()
}

/// Bytes that were text.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use flowgate_tasks::store::Sqlite;

    use super::*;

    #[tokio::test]
    async fn s3_two_servers_that_rotate_at_once_lose_no_key_and_no_token_is_made_in_vain() {
        // Seen to fail: with the next key taken from what the server knew, and without the count of tokens.
        let store: Arc<dyn Shelf> = Arc::new(Sqlite::in_memory().expect("a store in memory"));
        let one = Secrets::open(Arc::clone(&store), false).await.expect("a store");
        let other = Secrets::open(Arc::clone(&store), false).await.expect("a store");
        let first = one.rotate().await.expect("a store");
        assert_eq!(other.rotate().await.expect("a store").current, first.next);
        for number in 0..MOST_TOKENS {
            Secrets::keep(&*store, "many", &number.to_string(), Space::default()).await.expect("a store");
        }
        let refused =
            Secrets::create(&*store, "more", Space::default()).await.expect_err("it is one too many");
        assert!(refused.to_string().contains("revoke"), "{refused}");
        Secrets::keep(&*store, "known", "7", Space::default()).await.expect("it is there");
    }

    #[test]
    fn hashes_are_compared_whole() {
        let (one, other) = (hash("a"), hash("b"));
        assert!(same(&one, &one) && !same(&one, &other));
        assert_eq!(unhex(&hex(&one)), Some(one));
        assert_eq!(unhex("zz"), None);
        let mut near = one;
        near[31] ^= 1;
        assert!(!same(&one, &near));
        assert_ne!(random_text(20), random_text(20));
    }
}
