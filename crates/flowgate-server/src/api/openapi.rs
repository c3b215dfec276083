//! The API as an OpenAPI document, made from one table and served at `/openapi.json`.

use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use super::table::{Body, EXPLAIN, ROUTES, Route};

/// `GET /openapi.json`
pub(super) async fn read() -> impl IntoResponse {
    axum::Json(document())
}

/// The same table as a page.
pub(crate) fn reference() -> String {
    let mut text = "# The API\n\nWhat the server answers, at the address it prints. Every request wants `Authorization: Bearer <token>`, but \
        for webhooks. The same as a document for programs: `GET /openapi.json`. Made by `cargo xtask docs`.\n\n\
        What is wrong is told as `{\"error\": \"…\"}` with a 4xx, and then nothing has changed.\n\n\
        | request | what it does | query |\n|---|---|---|\n"
        .to_owned();
    for Route { path, method, about, query, .. } in ROUTES.iter().chain(&EXPLAIN) {
        let query = query.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        text += &format!("| `{} {path}` | {about} | {query} |\n", method.to_uppercase());
    }
    text
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES.iter().chain(&EXPLAIN) {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = route.operation();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Flowgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable HTTP delivery under limits: the QStash v2 API.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["error"],
                    "properties": { "error": { "type": "string", "description": "What is wrong, and what to send instead." } },
                },
            },
        },
    })
}

impl Route {
    fn operation(&self) -> Value {
        let parts = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let text = json!({ "type": "string" });
        let parts = parts.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
        let query = self
            .query
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "required": false, "schema": text }));
        let mut operation = json!({
            "summary": self.about,
            "parameters": parts.chain(query).collect::<Vec<Value>>(),
            "responses": self.responses(),
        });
        let body = match self.body {
            Body::None => return operation,
            Body::Any => json!({ "*/*": {} }),
            Body::Json => json!({ "application/json": {} }),
        };
        operation["requestBody"] = json!({ "required": self.body == Body::Json, "content": body });
        operation
    }

    fn responses(&self) -> Value {
        let shape = |shape: Value| json!({ "description": "It worked.", "content": { "application/json": { "schema": shape } } });
        let object = json!({ "type": "object" });
        let list = json!({ "type": "array" });
        let fine = match self.gives {
            "nothing" => json!({ "description": "It worked." }),
            "list" => shape(list),
            "published" => shape(json!({ "oneOf": [object, list] })),
            _ => shape(object),
        };
        let problem = json!({ "$ref": "#/components/schemas/Problem" });
        let problem =
            json!({ "description": "It did not.", "content": { "application/json": { "schema": problem } } });
        json!({ "2XX": fine, "4XX": problem, "503": problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::filter::NAMES;

    #[test]
    fn every_route_is_told_once() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        let told: usize = paths.values().map(|methods| methods.as_object().expect("methods").len()).sum();
        assert_eq!(told, ROUTES.len() + EXPLAIN.len(), "two entries of the table have one path and method");
        for name in NAMES {
            let cancel = document["paths"]["/v2/messages"]["delete"]["parameters"].to_string();
            assert!(cancel.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
