//! `/v2/topics`: URL groups.

use std::collections::BTreeMap;

use axum::{body::Bytes, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    path::Path,
    reply::{Answer, Problem, done, ok},
    sent::Sent,
    slice::TOLD,
};
use crate::{
    message::{Destination, Given, name, read as read_spec},
    office::{Desk, Endpoint, Group},
};

const FORM: &str = r#"send {"endpoints": [{"name": "one", "url": "https://…"}]}"#;
const MOST: usize = 1000;

#[derive(Deserialize)]
struct Body {
    endpoints: Vec<Named>,
}

#[derive(Clone, Deserialize)]
struct Named {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

fn body(body: &Bytes) -> Result<Vec<Named>, Problem> {
    let body: Body = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body has no endpoints ({error}); {FORM}")))?;
    if body.endpoints.is_empty() || body.endpoints.len() > MOST {
        return Err(Problem::bad(format!("there are no endpoints in it, or more than {MOST}; {FORM}")));
    }
    Ok(body.endpoints)
}

pub(super) async fn add(State(desk): State<Desk>, Path(group): Path<String>, Sent(bytes): Sent) -> Answer {
    let group = name("the URL group", &group)?;
    let mut endpoints = Vec::new();
    for Named { name: called, url } in body(&bytes)? {
        if let Some(called) = &called {
            name("the endpoint's name", called)?;
        }
        let url = match url.as_deref().map(Destination::read) {
            Some(Ok(Destination::Url(url))) => url,
            Some(Err(fault)) => return Err(fault.into()),
            Some(Ok(Destination::Group(_))) | None => {
                return Err(Problem::bad(format!(
                    "an endpoint has no URL that begins with http:// or https://; {FORM}"
                )));
            }
        };
        endpoints.push(Endpoint { name: called, url });
    }
    Group::change(&*desk.store, group, |group| {
        for new in &endpoints {
            let same = group.endpoints.iter_mut().find(|known| match (&new.name, &known.name) {
                (Some(new), Some(known)) => new == known,
                _ => new.url == known.url,
            });
            match same {
                Some(known) => *known = new.clone(),
                None => group.endpoints.push(new.clone()),
            }
        }
    })
    .await?;
    done()
}

pub(super) async fn take(State(desk): State<Desk>, Path(group): Path<String>, Sent(bytes): Sent) -> Answer {
    let gone = body(&bytes)?;
    if Group::find(&*desk.store, &group).await?.is_none() {
        return Err(Problem::missing("URL group", &group));
    }
    Group::change(&*desk.store, &group, |group| {
        let had_some = !group.endpoints.is_empty();
        group.endpoints.retain(|known| {
            !gone.iter().any(|gone| {
                let is_named = gone.name.is_some() && gone.name == known.name;
                is_named || gone.url.as_deref() == Some(known.url.as_str())
            })
        });
        // The last one takes the group with it, settings and all.
        if had_some && group.endpoints.is_empty() {
            group.headers.clear();
        }
    })
    .await?;
    done()
}

#[derive(Deserialize)]
struct Settings {
    headers: BTreeMap<String, String>,
}

pub(super) async fn settings(
    State(desk): State<Desk>,
    Path(group): Path<String>,
    Sent(bytes): Sent,
) -> Answer {
    let group = name("the URL group", &group)?;
    let form = r#"send {"headers": {"Upstash-Retries": "3"}}"#;
    let settings: Settings = serde_json::from_slice(&bytes)
        .map_err(|error| Problem::bad(format!("the body has no headers ({error}); {form}")))?;
    let given: Given = settings.headers.iter().map(|(name, value)| (name, value.as_str())).collect();
    read_spec(&given)?;
    // What no message is made of is not kept either.
    let headers: Vec<(String, String)> = given.kept().collect();
    Group::change(&*desk.store, group, |group| group.headers.clone_from(&headers)).await?;
    done()
}

pub(super) async fn list(State(desk): State<Desk>) -> Answer {
    let groups = Group::all(&*desk.store, TOLD).await?;
    ok(groups.iter().map(view).collect::<Vec<_>>())
}

pub(super) async fn read(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let group = Group::find(&*desk.store, &name).await?;
    ok(view(&group.ok_or_else(|| Problem::missing("URL group", &name))?))
}

pub(super) async fn remove(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    Group::remove(&*desk.store, &name).await?;
    done()
}

fn view(group: &Group) -> Value {
    json!({
        "name": group.name,
        "createdAt": group.created,
        "updatedAt": group.updated,
        "endpoints": group.endpoints,
    })
}
