//! The API as a page of the docs, made from the table that `/openapi.json` is made from.

use super::{openapi::all, table::Route};

const HEAD: &str = "\
# The API

What the server answers, at the address it prints. Every request wants `Authorization: Bearer <token>`, but for webhooks. The same as
a document for programs: `GET /openapi.json`, which wants none. Made by `cargo xtask docs`.

What is wrong is told as `{\"error\": \"…\"}` with a 4xx, and then nothing has changed.

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
