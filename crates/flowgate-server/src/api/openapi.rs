//! The API as an OpenAPI document, made from one table and served at `/openapi.json`.

use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use super::{
    auth::{DOCUMENT, HOOKS},
    openapi_runs, schema, shapes,
    table::{Body, EXPLAIN, ROUTES, Route},
};

/// `GET /openapi.json`
pub(super) async fn read() -> impl IntoResponse {
    axum::Json(document())
}

/// All routes.
pub(super) fn all() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(&EXPLAIN).chain(&openapi_runs::ROUTES)
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in all() {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = route.operation();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Flowgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable HTTP delivery under limits: the QStash v2 API, and its workflows.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": shapes::all(),
        },
    })
}

impl Route {
    fn operation(&self) -> Value {
        let parts = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let told = |name: &str, place: &str, is_required: bool| {
            let form = schema::parameter(self.path, name);
            json!({ "name": name, "in": place, "required": is_required, "schema": form })
        };
        let parts = parts.map(|name| told(name, "path", true));
        let query = self.query.iter().map(|name| told(name, "query", *name == "mode"));
        let mut operation = json!({
            "summary": self.about,
            "parameters": parts.chain(query).collect::<Vec<Value>>(),
            "responses": self.responses(),
        });
        if self.path == DOCUMENT || self.path.starts_with(HOOKS) {
            operation["security"] = json!([]);
        }
        let body = match self.body {
            Body::None => return operation,
            Body::Any => json!({ "*/*": {} }),
            Body::Json => json!({ "application/json": { "schema": schema::body(self.path, self.method) } }),
        };
        operation["requestBody"] = json!({ "required": self.body == Body::Json, "content": body });
        operation
    }

    fn responses(&self) -> Value {
        let fine = match self.gives {
            "nothing" => json!({ "description": "It worked." }),
            kind => {
                let content = json!({ "application/json": { "schema": shapes::form(kind) } });
                json!({ "description": "It worked.", "content": content })
            }
        };
        let problem = shapes::form("Problem");
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
        assert_eq!(told, all().count(), "two entries of the table have one path and method");
        for name in NAMES {
            let cancel = document["paths"]["/v2/messages"]["delete"]["parameters"].to_string();
            assert!(cancel.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
