//! Asks whoever of the fleet is there: an answer that does not come, or not whole, is none.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::time::timeout;

use crate::{fire::Fleet, lanes::Chance};

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// A request, without who is asked.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    /// What was asked before the last of them may have been done as well.
    pub(crate) tries: u32,
}

#[derive(Clone)]
pub(crate) struct Caller {
    fleet: Arc<Fleet>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Caller {
    pub(crate) fn new(fleet: &Arc<Fleet>) -> Self {
        Caller { fleet: Arc::clone(fleet), client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Asks one of them, and the next one, until one has done it or has refused it.
    pub(crate) async fn insist(&self, ask: &Ask, chance: &mut Chance) -> Reply {
        let mut tries = 0;
        loop {
            tries += 1;
            match timeout(PATIENCE, self.once(ask, chance)).await.ok().flatten() {
                Some((status, body)) if !status.is_server_error() => return Reply { status, body, tries },
                _ => pause().await,
            }
        }
    }

    async fn once(&self, ask: &Ask, chance: &mut Chance) -> Option<(StatusCode, Bytes)> {
        let (address, token) = self.fleet.anyone(chance);
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(format!("http://{address}{}", ask.path))
            .header("authorization", format!("Bearer {token}"));
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(ask.body.clone()))).unwrap();
        let response = self.client.request(request).await.ok()?;
        let status = response.status();
        // Until it is whole the server may have been killed: then another is asked.
        let body = response.into_body().collect().await.ok()?;
        Some((status, body.to_bytes()))
    }
}

pub(crate) async fn pause() {
    let _ = timeout(PAUSE, pending::<()>()).await;
}
