//! Sessions: who is logged in.
//!
//! They are kept in the store, so that every server of a fleet knows them, and as hashes, so that a reader of
//! the store cannot use them. Owns their number and their end: a session ends after half a day, with its
//! token, or with a log-out.

use std::sync::Arc;

use flowgate_tasks::store::{Document, Shelf, StoreError};
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    office::{DEV_TOKEN, Secrets, is_same, kept_as, random_text},
};

const KIND: &str = "console-session";
/// Half a day, in milliseconds.
const LIFE: u64 = 12 * 60 * 60 * 1000;
/// More are not kept: the one that would end first goes.
const MOST: u32 = 256;
/// 32 possible letters each: 215 bits.
const LENGTH: usize = 43;

/// All sessions.
#[derive(Clone)]
pub(super) struct Sessions {
    store: Arc<dyn Shelf>,
    secrets: Arc<Secrets>,
}

/// One that was just opened: the only moment at which its id is known here.
pub(super) struct Opened {
    pub(super) id: String,
    pub(super) session: Session,
}

/// What is kept of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// The name of the token that opened it.
    token: String,
    /// What each change has to bring along, which a page from elsewhere cannot know.
    pub(super) csrf: String,
    /// Milliseconds since the Unix epoch.
    pub(super) until: u64,
}

impl Sessions {
    pub(super) fn new(store: Arc<dyn Shelf>, secrets: Arc<Secrets>) -> Self {
        Sessions { store, secrets }
    }

    /// Whether whoever sits at this machine needs no token.
    pub(super) fn is_dev(&self) -> bool {
        self.secrets.is_dev()
    }

    /// Whether a token is one of this server's that is for a namespace: such a token opens no session.
    pub(super) fn is_of_namespace(&self, token: &str) -> bool {
        self.secrets.accepts(token).is_some_and(|space| !space.is_root())
    }

    /// Opens a session for a token. `None`: it is none of this server's, or one of a namespace.
    pub(super) async fn open(&self, token: &str) -> Result<Option<Opened>, StoreError> {
        let Some(token) = self.secrets.name_of(token) else { return Ok(None) };
        self.make_room().await?;
        let id = random_text(LENGTH);
        let session = Session { token, csrf: random_text(LENGTH), until: clock::now() + LIFE };
        let body = serde_json::to_vec(&session).expect("a session is plain data");
        let document = Document { kind: KIND.into(), name: kept_as(&id), body, version: None };
        self.store.put_document(document).await?;
        Ok(Some(Opened { id, session }))
    }

    /// The same for the public token.
    pub(super) async fn open_dev(&self) -> Result<Option<Opened>, StoreError> {
        self.open(DEV_TOKEN).await
    }

    /// The session of this id, unless it has ended.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Session>, StoreError> {
        if id.len() != LENGTH {
            return Ok(None);
        }
        let Some(found) = self.store.document(KIND.into(), kept_as(id)).await? else { return Ok(None) };
        let session: Option<Session> = serde_json::from_slice(&found.body).ok();
        Ok(session.filter(|session| session.until > clock::now() && self.secrets.knows(&session.token)))
    }

    pub(super) async fn close(&self, id: &str) -> Result<(), StoreError> {
        self.store.remove_document(KIND.into(), kept_as(id)).await.map(drop)
    }

    /// Removes those that have ended, and the one that ends first if there are too many.
    async fn make_room(&self) -> Result<(), StoreError> {
        let all = self.store.documents(KIND.into(), String::new(), MOST + 64).await?;
        let mut left = Vec::new();
        for document in all {
            match serde_json::from_slice::<Session>(&document.body) {
                Ok(session) if session.until > clock::now() => left.push((session.until, document.name)),
                _ => drop(self.store.remove_document(KIND.into(), document.name).await?),
            }
        }
        left.sort_unstable();
        let over = (left.len() + 1).saturating_sub(MOST as usize);
        for (_, name) in left.into_iter().take(over) {
            self.store.remove_document(KIND.into(), name).await?;
        }
        Ok(())
    }
}

impl Session {
    pub(super) fn is_from_its_page(&self, csrf: &str) -> bool {
        is_same(&self.csrf, csrf)
    }
}
