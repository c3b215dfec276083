//! What the server says on the terminal.
//!
//! Owns the words. The `curl` line works as pasted.

use std::net::SocketAddr;

use super::StoreAt;
use crate::{office::DEV_TOKEN, terminal::reached_at};

/// Which token there is to use.
pub(super) enum Token {
    /// The one that everybody knows.
    Dev,
    /// Just made, and told this once.
    New(String),
    /// Given on the command line, or made before: not told.
    Known,
}

pub(super) fn greeting(at: SocketAddr, gateway: Option<&str>, store: &StoreAt, token: &Token) -> String {
    let gateway = gateway.map_or_else(String::new, |url| format!("the gateway listens on {url}\n"));
    let url = format!("http://{}", reached_at(at));
    let version = env!("CARGO_PKG_VERSION");
    let (shown, note) = match token {
        Token::Dev => (DEV_TOKEN, "  (the public one for development; QSTASH_DEV=true finds it by itself)"),
        Token::New(token) => (token.as_str(), "  (made just now, and not shown again)"),
        Token::Known => ("$QSTASH_TOKEN", "  (one that you have; `flowgate token create` makes another)"),
    };
    let console = match token {
        Token::Dev => "  (open it: on this machine nobody has to log in)",
        _ => "  (log in with the token)",
    };
    let bearer = if matches!(token, Token::Known) {
        format!("\"Authorization: Bearer {shown}\"")
    } else {
        format!("'Authorization: Bearer {shown}'")
    };
    format!(
        "\
flowgate {version} listens on {url}/v2 (the QStash API)
{gateway}
  console         {url}/console{console}
  store           {store}
  QSTASH_URL      {url}
  QSTASH_TOKEN    {shown}{note}

Paste into another terminal: a message for a key that has two at once and twenty a minute, and the keys:

  curl -X POST '{url}/v2/publish/{url}/health' -H {bearer} -H 'Upstash-Flow-Control-Key: try' -H 'Upstash-Flow-Control-Value: parallelism=2, rate=20, period=1m' -d 'hello'
  curl '{url}/v2/flowControl' -H {bearer}

Ctrl-C drains and stops."
    )
}
