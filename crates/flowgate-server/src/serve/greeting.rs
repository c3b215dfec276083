//! What the server says on the terminal.
//!
//! Owns the words. The lines for another terminal work as pasted.

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

pub(super) fn greeting(
    at: SocketAddr,
    gateway: Option<&str>,
    store: &StoreAt,
    token: &Token,
    denies_private: bool,
) -> String {
    let gateway = gateway.map_or_else(String::new, |url| format!("the gateway listens on {url}\n"));
    let url = format!("http://{}", reached_at(at));
    let version = env!("CARGO_PKG_VERSION");
    let (login, kind) = match token {
        Token::Dev => (
            "open it: on this machine nobody has to log in",
            "the public one for development; clients with QSTASH_DEV=true use it by themselves",
        ),
        Token::New(_) => ("log in with the token", "the one below, just created; it is not shown again"),
        Token::Known => ("log in with the token", "one that you have; `flowgate token create` makes another"),
    };
    let token = match token {
        Token::Dev => format!(" QSTASH_TOKEN='{DEV_TOKEN}'"),
        Token::New(token) => format!(" QSTASH_TOKEN='{token}'"),
        Token::Known => String::new(),
    };
    // Its own address is a private one for most servers: then a message to it would be refused.
    let (to, note) = if denies_private {
        (
            "https://example.com",
            "\n\nThis server delivers to no private address (--deny-private): put a URL of yours in the place of \
                https://example.com.",
        )
    } else {
        ("$QSTASH_URL/health", "")
    };
    format!(
        "\
flowgate {version} listens on {url}/v2 (the QStash API)
{gateway}
  console   {url}/console  ({login})
  store     {store}
  token     {kind}

Paste into another terminal to set the address, send a message (of its key two at once, twenty a minute) and list the keys:

  export QSTASH_URL='{url}'{token}
  curl -X POST \"$QSTASH_URL/v2/publish/{to}\" -H \"Authorization: Bearer $QSTASH_TOKEN\" -H \
  'Upstash-Flow-Control-Key: try' -H 'Upstash-Flow-Control-Value: parallelism=2, rate=20, period=1m' -d 'hello'
  curl \"$QSTASH_URL/v2/flowControl\" -H \"Authorization: Bearer $QSTASH_TOKEN\"{note}

Ctrl-C drains and stops."
    )
}
