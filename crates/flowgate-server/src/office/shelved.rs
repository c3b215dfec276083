//! Documents of one kind, all of them: lists without pages.
//!
//! Owns how many are told, and that neither what is read at once nor what is told has more than a bounded size.

use flowgate_tasks::store::{Shelf, StoreError};
use serde::de::DeserializeOwned;

/// More are not listed.
const MOST: usize = 10_000;
/// So many are read at once: each can be as large as a request.
const AT_ONCE: u32 = 8;

/// A document of which the largest part may be left out of a list.
pub(super) trait Listed: DeserializeOwned {
    /// How many bytes that part has.
    fn size(&self) -> usize;

    fn leave_out(&mut self);
}

/// All documents of a kind. Once their large parts are `bytes` in all, those of the others are left out.
pub(super) async fn all<T: Listed>(
    store: &dyn Shelf,
    kind: &str,
    bytes: usize,
) -> Result<Vec<T>, StoreError> {
    let (mut all, mut after, mut left) = (Vec::new(), String::new(), bytes);
    while all.len() < MOST {
        let page = store.documents(kind.into(), after, AT_ONCE).await?;
        let Some(last) = page.last() else { break };
        after = last.name.clone();
        for found in page {
            let Ok(mut document) = serde_json::from_slice::<T>(&found.body) else { continue };
            match left.checked_sub(document.size()) {
                Some(rest) => left = rest,
                None => document.leave_out(),
            }
            all.push(document);
        }
    }
    Ok(all)
}
