//! `/v2/topics`: URL groups.

use std::collections::BTreeMap;

use axum::extract::State;
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
#[serde(deny_unknown_fields)]
struct Body {
    endpoints: Vec<Named>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

fn endpoints_of(sent: &Sent) -> Result<Vec<Named>, Problem> {
    let body: Body = sent.object(FORM)?;
    if body.endpoints.is_empty() || body.endpoints.len() > MOST {
        return Err(Problem::bad(format!("there are no endpoints in it, or more than {MOST}; {FORM}")));
    }
    Ok(body.endpoints)
}

pub(super) async fn add(State(desk): State<Desk>, Path(group): Path<String>, sent: Sent) -> Answer {
    let group = name("the URL group", &group)?;
    let mut endpoints = Vec::new();
    for Named { name: called, url } in endpoints_of(&sent)? {
        if let Some(called) = &called {
            name("the endpoint's name", called)?;
        }
        let url = Destination::url("the endpoint's URL", url.as_deref().unwrap_or_default())?;
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

pub(super) async fn take(State(desk): State<Desk>, Path(group): Path<String>, sent: Sent) -> Answer {
    let gone = endpoints_of(&sent)?;
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
#[serde(deny_unknown_fields)]
struct Settings {
    headers: BTreeMap<String, String>,
}

pub(super) async fn settings(State(desk): State<Desk>, Path(group): Path<String>, sent: Sent) -> Answer {
    let group = name("the URL group", &group)?;
    let settings: Settings = sent.object(r#"send {"headers": {"Upstash-Retries": "3"}}"#)?;
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
