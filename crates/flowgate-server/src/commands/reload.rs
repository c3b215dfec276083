//! `flowgate reload`: has the running server read its configuration again.
//!
//! Owns finding the server, asking it, and saying what it said. A configuration that is wrong is told here, and not sent.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::{failure::Failure, store::print};
use crate::{cli::ReloadOptions, gateway::RELOAD, office::DEV_TOKEN};

/// A reload waits for nobody but the one before it.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than a reload has to say; whatever else listens there may say more.
const LONGEST: u64 = 1 << 20;
const NO_TOKEN: &str = "the server requires a token: set --token or QSTASH_TOKEN; SIGHUP needs none";

/// Asks the server at the configured address to reload, and prints what came of it.
pub(crate) fn reload(options: &ReloadOptions) -> Result<(), Failure> {
    let address = options.config.sources().load()?.config.server.listen;
    let given = options.token.as_deref().filter(|token| !token.is_empty());
    let token = given.unwrap_or(DEV_TOKEN);
    let answer = ask(address, token).map_err(|error| Failure::Unreachable { address, error })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let said = serde_json::from_str::<serde_json::Value>(body).ok();
    let text = |field: &str| said.as_ref().and_then(|said| said[field].as_str());
    match (head.split(' ').nth(1), text("said").or(text("error"))) {
        (Some("401"), _) if given.is_none() => Err(Failure::NotReloaded(NO_TOKEN.to_owned())),
        (Some("401"), _) => {
            Err(Failure::NotReloaded(format!("the server on {address} does not know this token")))
        }
        (Some("200"), Some(said)) => print(&format!("{said}\n")),
        // One without a gateway has nothing there, and says so in words of its own.
        (Some("404"), _) | (_, None) => Err(Failure::NotReloaded(format!(
            "the server on {address} has no gateway to reload; name another with --listen"
        ))),
        (_, Some(said)) => Err(Failure::NotReloaded(said.to_owned())),
    }
}

fn ask(address: SocketAddr, token: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST {RELOAD} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
