//! A minimal HTTP client over real sockets.
//!
//! Owns one request per connection: sent at once, read later, or dropped to hang up.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

/// Longer than anything here takes; a server that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request under way. Dropping it hangs up.
pub(crate) struct Request(TcpStream);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: String,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn send(to: SocketAddr, method: &str, target: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = TcpStream::connect(to).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero is fine");
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        // With HTTP/1.0 an answer without a length simply ends with the connection: no chunks to read.
        let head = format!("{method} {target} HTTP/1.0\r\nHost: {to}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        Request(stream)
    }

    pub(crate) fn answer(mut self) -> Answer {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("the server answers in time");
        Answer::parse(&text)
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.0
    }
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no status: {first:?}")),
            headers: headers.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}
