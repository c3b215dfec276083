//! A client that a test plays by hand: it sends what the test says, and reads answers.
//!
//! Owns one connection. Dropping it hangs up.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
};

use serde_json::Value;

use crate::program::DEADLINE;

pub(crate) struct Client(BufReader<TcpStream>);

/// The head of a message, and its body if that was read.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        Client::of(TcpStream::connect(to).expect("somebody listens"))
    }

    pub(crate) fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero is fine");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout above zero is fine");
        stream.set_nodelay(true).expect("a connection can be told so");
        Client(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(text.as_ref()).expect("the other side reads");
    }

    /// Sends as much as is taken; whether that was all.
    pub(crate) fn try_send(&mut self, text: impl AsRef<[u8]>) -> bool {
        self.0.get_mut().write_all(text.as_ref()).is_ok()
    }

    /// Sends this over and over until no more is taken: whether the connection has ended then, and not merely stands still.
    pub(crate) fn floods(&mut self, text: &str) -> bool {
        loop {
            if let Err(error) = self.0.get_mut().write_all(text.as_bytes()) {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }

    /// A request without a body, with these lines of headers.
    pub(crate) fn ask(&mut self, method: &str, target: &str, headers: &str) {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: gateway.test\r\n{headers}\r\n"));
    }

    pub(crate) fn get(&mut self, target: &str) -> Message {
        self.ask("GET", target, "");
        self.read()
    }

    /// A message with all of its body.
    pub(crate) fn read(&mut self) -> Message {
        let mut message = self.read_head();
        self.read_body(&mut message);
        message
    }

    /// A message with all of its body; `None` if the connection ends instead.
    pub(crate) fn try_read(&mut self) -> Option<Message> {
        let mut message = self.try_read_head()?;
        self.read_body(&mut message);
        Some(message)
    }

    /// The head of a message alone.
    pub(crate) fn read_head(&mut self) -> Message {
        self.try_read_head().expect("a message, and not the end of the connection")
    }

    /// The head of a message; `None` if the connection ends instead.
    pub(crate) fn try_read_head(&mut self) -> Option<Message> {
        let first = self.line()?;
        let headers = self.fields()?;
        Some(Message { first, headers, ..Message::default() })
    }

    fn read_body(&mut self, message: &mut Message) {
        let is_bodiless = message.first.contains(" 204 ") || message.first.contains(" 304 ");
        if message.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.line().expect("a chunk has a size");
                let size = usize::from_str_radix(&size, 16).expect("a size is a number");
                if size == 0 {
                    break;
                }
                message.body.extend(self.exactly(size));
                assert_eq!(self.line().as_deref(), Some(""), "a chunk ends with its line");
            }
            message.trailers = self.fields().expect("a body in chunks ends with a line");
        } else if let Some(length) = message.header("content-length").filter(|_| !is_bodiless) {
            let length = length.parse().expect("a length is a number");
            message.body = self.exactly(length);
        }
    }

    /// All that comes until a line is empty, byte by byte as it came.
    pub(crate) fn raw_head(&mut self) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.extend(self.exactly(1));
        }
        String::from_utf8(bytes).expect("it is text")
    }

    /// One chunk of a body that comes in chunks.
    pub(crate) fn read_chunk(&mut self) -> String {
        let size = self.line().expect("a chunk has a size");
        let size = usize::from_str_radix(&size, 16).expect("a size is a number");
        let chunk = String::from_utf8(self.exactly(size)).expect("it is text");
        assert_eq!(self.line().as_deref(), Some(""), "a chunk ends with its line");
        chunk
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("the bytes come in time");
        bytes
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':').expect("a header has a name and a value");
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Waits for the end of the connection: whether it comes in time, and without a further byte.
    pub(crate) fn ends(&mut self) -> bool {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// All that comes until the connection ends, however it does.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ = self.0.read_to_end(&mut bytes);
        String::from_utf8(bytes).expect("it is text")
    }

    /// The same connection, for another thread to write to.
    pub(crate) fn share(&self) -> TcpStream {
        self.0.get_ref().try_clone().expect("a connection can be shared")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // To close it is not enough: a program that another test is just starting has a copy of it until it runs, and so
        // long the other side hears of nothing. It may be closed already.
        let _ = self.0.get_ref().shutdown(Shutdown::Both);
    }
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        let word = self.first.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no status in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("it is text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code in the envelope of a refusal or a failure.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}
