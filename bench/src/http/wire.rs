//! HTTP/1.1 as the load speaks it: a request is a text that is always the same, an answer is a status, some headers and a
//! body of a known length.
//!
//! Written by hand so that the load costs little beside what it measures. It understands our servers and proxies, and is
//! no client for anything else.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn is_well(&self) -> bool {
        self.status == 200
    }

    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (header, value) = line.split_once(':')?;
            header.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Whether the connection ends with it.
    pub(super) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// What has come of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The answer, once all of it is there. What has come behind it stays.
    pub(super) fn answer(&mut self) -> io::Result<Option<Answer>> {
        let Some(end) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("not an answer we know: {head}"));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
        let mut answer = Answer { status, head: head.clone(), body: String::new() };
        let length: usize =
            answer.header("content-length").and_then(|length| length.parse().ok()).ok_or_else(wrong)?;
        let whole = end + 4 + length;
        if self.bytes.len() < whole {
            return Ok(None);
        }
        answer.body = String::from_utf8_lossy(&self.bytes[end + 4..whole]).into_owned();
        self.bytes.drain(..whole);
        Ok(Some(answer))
    }
}

/// Asks, and waits for the answer.
pub(super) fn ask(stream: &mut TcpStream, request: &[u8]) -> io::Result<Answer> {
    stream.write_all(request)?;
    let mut incoming = Incoming::default();
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => incoming.add(&buffer[..count]),
        }
        if let Some(answer) = incoming.answer()? {
            return Ok(answer);
        }
    }
}

/// The same, for many at once.
pub(super) async fn ask_async(stream: &mut tokio::net::TcpStream, request: &[u8]) -> io::Result<Answer> {
    stream.write_all(request).await?;
    let mut incoming = Incoming::default();
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => incoming.add(&buffer[..count]),
        }
        if let Some(answer) = incoming.answer()? {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Incoming;

    #[test]
    fn an_answer_is_read_piece_by_piece() {
        let mut incoming = Incoming::default();
        for byte in b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n\r\nn" {
            incoming.add(&[*byte]);
            assert_eq!(incoming.answer().unwrap(), None);
        }
        incoming.add(b"oHTTP");
        let answer = incoming.answer().unwrap().unwrap();
        assert_eq!((answer.status, answer.header("content-length"), answer.closes()), (429, Some("2"), true));
        assert_eq!((answer.is_well(), answer.body.as_str()), (false, "no"));
        assert_eq!(incoming.answer().unwrap(), None);
    }

    #[test]
    fn what_we_do_not_know_is_an_error() {
        for text in ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "SSH-2.0-x\r\n\r\n"] {
            let mut incoming = Incoming::default();
            incoming.add(text.as_bytes());
            assert!(incoming.answer().is_err(), "{text}");
        }
    }
}
