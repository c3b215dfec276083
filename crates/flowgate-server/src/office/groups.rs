//! URL groups: one name for several endpoints, as documents.

use flowgate_tasks::store::{Document, Shelf, StoreError};
use serde::{Deserialize, Serialize};

use super::{
    Refused,
    shelved::{self, Listed},
};
use crate::{clock, message::Fault};

const KIND: &str = "group";
/// Each of them is a message of its own.
const MOST_ENDPOINTS: usize = 1000;

/// A group. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Settings of every message to it that does not bring its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) url: String,
}

impl Listed for Group {
    fn size(&self) -> usize {
        let endpoints =
            self.endpoints.iter().map(|each| each.url.len() + each.name.as_ref().map_or(0, String::len));
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        endpoints.chain(headers).sum()
    }

    fn leave_out(&mut self) {
        self.endpoints = Vec::new();
        self.headers = Vec::new();
    }
}

impl Group {
    pub(crate) async fn find(store: &dyn Shelf, name: &str) -> Result<Option<Self>, StoreError> {
        let found = store.document(KIND.into(), name.to_owned()).await?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.body).ok()))
    }

    /// All of them. The list has no pages: endpoints and settings beyond `bytes` in all are left out, and told of each
    /// group by itself.
    pub(crate) async fn all(store: &dyn Shelf, bytes: usize) -> Result<Vec<Self>, StoreError> {
        shelved::all(store, KIND, bytes).await
    }

    /// Changes a group, which is made if it is not there; one that is left without endpoints and settings is removed. What
    /// others change at the same time is changed as well: whoever comes second looks again.
    pub(crate) async fn change(
        store: &dyn Shelf,
        name: &str,
        change: impl Fn(&mut Group) + Send,
    ) -> Result<(), Refused> {
        loop {
            let found = store.document(KIND.into(), name.to_owned()).await?;
            let version = found.as_ref().map_or(Some(0), |found| found.version);
            let known: Option<Group> = found.and_then(|found| serde_json::from_slice(&found.body).ok());
            let now = clock::now();
            let mut group =
                known.unwrap_or_else(|| Group { name: name.to_owned(), created: now, ..Group::default() });
            group.updated = now;
            change(&mut group);
            if group.endpoints.len() > MOST_ENDPOINTS {
                let text = format!(
                    "the URL group would have {} endpoints; it can have up to {MOST_ENDPOINTS}",
                    group.endpoints.len()
                );
                return Err(Fault::text(text).into());
            }
            let is_left = !group.endpoints.is_empty() || !group.headers.is_empty();
            let body = serde_json::to_vec(&group).expect("a group is plain data");
            let document = Document { kind: KIND.into(), name: name.to_owned(), body, version };
            let is_done = match version {
                _ if is_left => store.put_document(document).await?,
                None | Some(0) => true,
                Some(version) => store.remove_document_at(KIND.into(), name.to_owned(), version).await?,
            };
            if is_done {
                return Ok(());
            }
        }
    }

    pub(crate) async fn remove(store: &dyn Shelf, name: &str) -> Result<(), StoreError> {
        store.remove_document(KIND.into(), name.to_owned()).await.map(drop)
    }
}
