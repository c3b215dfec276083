//! The API as a page of the docs, made from the table that `/openapi.json` is made from.

use super::{openapi::all, table::Route};

const HEAD: &str = "\
# The API

What the server answers, at the address it prints. Every request needs `Authorization: Bearer <token>`, except webhooks and
`GET /openapi.json`, which is this page for programs. Made by `cargo xtask docs`.

An invalid request gets a 4xx with `{\"error\": \"…\"}`, and changes nothing, unless its row says more.

| request | what it does | query |
|---|---|---|
";

/// The page.
pub(crate) fn reference() -> String {
    let mut text = HEAD.to_owned();
    for Route { path, method, about, query, .. } in all() {
        let query = query.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        text += &format!("| `{} {path}` | {about} | {query} |\n", method.to_uppercase());
    }
    text
}
