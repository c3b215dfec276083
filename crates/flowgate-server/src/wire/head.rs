//! The head of an upstream's response.
//!
//! Owns reading it: which headers are sent on, how the body is framed, and whether the connection can be used again. What
//! could be read in two ways is not read at all.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response::Parts};
use hyper::ext::ReasonPhrase;

const MOST_HEADERS: usize = 100;
/// Below what 16 bits count.
const LARGEST: usize = 60 << 10;

/// It is no HTTP, or none that is the same to everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    /// Without what belongs to one connection.
    pub(super) parts: Parts,
    pub(super) framing: Framing,
    /// Whether the connection can be used again, once the body has been read.
    pub(super) is_kept: bool,
    /// The protocol that is spoken from here on, of a 101.
    pub(super) protocol: Option<HeaderValue>,
}

/// How the end of the body is found (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunks,
    UntilClose,
}

/// Where in the input the name and the value of a header are.
#[derive(Clone, Copy, Default)]
struct Place {
    name: (u16, u16),
    value: (u16, u16),
}

/// What the headers say of the message itself.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    is_chunked: bool,
    is_closed: bool,
    is_kept: bool,
    protocol: Option<HeaderValue>,
    /// Whether `Connection` names headers of its own.
    names: bool,
}

impl Head {
    /// The head of the response to a request with this method, taken from the input; `None` if it is not all there.
    /// Room for the headers that will be added is made where their map is made.
    pub(super) fn read(
        input: &mut BytesMut,
        method: &Method,
        added: usize,
    ) -> Result<Option<Self>, Malformed> {
        let mut lines = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut response, input, &mut lines);
        let length = match parsed.map_err(|_| Malformed)? {
            httparse::Status::Complete(length) if length <= LARGEST => length,
            httparse::Status::Partial if input.len() <= LARGEST => return Ok(None),
            _ => return Err(Malformed),
        };
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed)?;
        let is_current = response.version == Some(1);
        let reason = response.reason.filter(|reason| status.canonical_reason() != Some(reason));
        let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
        let start = input.as_ptr().addr();
        let small = |at| u16::try_from(at).expect("the whole head is shorter");
        let place = |text: &[u8]| {
            let from = text.as_ptr().addr() - start;
            (small(from), small(from + text.len()))
        };
        let mut places = [Place::default(); MOST_HEADERS];
        let count = response.headers.len();
        for (at, line) in places.iter_mut().zip(&*response.headers) {
            *at = Place { name: place(line.name.as_bytes()), value: place(line.value) };
        }
        let text = input.split_to(length).freeze();
        let (headers, said) = headers(&text, &places[..count], added)?;
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = status;
        parts.headers = headers;
        if let Some(reason) = reason {
            parts.extensions.insert(reason);
        }
        said.head(parts, method, is_current).map(Some)
    }
}

fn headers(text: &Bytes, places: &[Place], added: usize) -> Result<(HeaderMap, Said), Malformed> {
    let mut headers = HeaderMap::with_capacity(places.len() + added);
    let mut said = Said::default();
    let mut connection = HeaderMap::new();
    for Place { name, value } in places {
        let span = |(from, to): (u16, u16)| usize::from(from)..usize::from(to);
        let name = HeaderName::from_bytes(&text[span(*name)]).map_err(|_| Malformed)?;
        let value = HeaderValue::from_maybe_shared(text.slice(span(*value))).map_err(|_| Malformed)?;
        match name {
            header::CONNECTION => {
                said.connection(&value);
                connection.append(name, value);
            }
            header::TRANSFER_ENCODING => said.coding(&value)?,
            header::UPGRADE => said.protocol = Some(value),
            header::TE => {}
            header::CONTENT_LENGTH => {
                if said.length(&value)? {
                    headers.append(name, value);
                }
            }
            _ if matches!(name.as_str(), "keep-alive" | "proxy-connection") => {}
            _ => {
                headers.append(name, value);
            }
        }
    }
    if said.names {
        strip_named(&mut headers, &connection);
    }
    if said.is_chunked {
        // Of two lengths the chunks are the one that counts.
        headers.remove(header::CONTENT_LENGTH);
    }
    Ok((headers, said))
}

/// Whether a header that is a list has this item.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(item))
}

/// Takes out what `Connection` names.
fn strip_named(headers: &mut HeaderMap, connection: &HeaderMap) {
    let is_named = |name: &&HeaderName| lists(connection, &header::CONNECTION, name.as_str());
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| **name != header::CONTENT_LENGTH).filter(is_named).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

impl Said {
    fn connection(&mut self, value: &HeaderValue) {
        for word in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if word.eq_ignore_ascii_case(b"close") {
                self.is_closed = true;
            } else if word.eq_ignore_ascii_case(b"keep-alive") {
                self.is_kept = true;
            } else if !word.is_empty() && !word.eq_ignore_ascii_case(b"upgrade") {
                self.names = true;
            }
        }
    }

    /// Nothing but chunks, and those once: another coding would be lost with the header that names it.
    fn coding(&mut self, value: &HeaderValue) -> Result<(), Malformed> {
        if self.is_chunked || !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Malformed);
        }
        self.is_chunked = true;
        Ok(())
    }

    /// Whether it is the first one; others have to say the same.
    fn length(&mut self, value: &HeaderValue) -> Result<bool, Malformed> {
        let digits = value.as_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Malformed);
        }
        let length = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Malformed)?;
        match self.length.replace(length) {
            None => Ok(true),
            Some(known) if known == length => Ok(false),
            Some(_) => Err(Malformed),
        }
    }

    fn head(self, parts: Parts, method: &Method, is_current: bool) -> Result<Head, Malformed> {
        let status = parts.status;
        let is_bodiless = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *method == Method::HEAD;
        let framing = match (self.length, self.is_chunked) {
            // A server of the old version cannot know of chunks: whatever that is, it is not what it says.
            (_, true) if !is_current => return Err(Malformed),
            _ if is_bodiless => Framing::Length(0),
            (_, true) => Framing::Chunks,
            (Some(length), false) => Framing::Length(length),
            (None, false) => Framing::UntilClose,
        };
        let is_kept = if is_current { !self.is_closed } else { self.is_kept && !self.is_closed };
        let is_plain = !(self.is_chunked && self.length.is_some());
        let is_kept = is_kept && is_plain && framing != Framing::UntilClose;
        Ok(Head { parts, framing, is_kept, protocol: self.protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, method: &Method) -> Result<Option<Head>, Malformed> {
        Head::read(&mut BytesMut::from(text), method, 0)
    }

    #[test]
    fn w3_the_end_of_a_body_is_found_as_the_standard_says() {
        // Seen to fail: with a length that counts beside chunks.
        let get = Method::GET;
        for (text, method, framing, is_kept) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", &get, Framing::Length(5), true),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
                &get,
                Framing::Length(5),
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", &get, Framing::Chunks, true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
                &get,
                Framing::Chunks,
                false,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", &get, Framing::UntilClose, false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", &Method::HEAD, Framing::Length(0), true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", &get, Framing::Length(0), true),
            (
                "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
                &get,
                Framing::Length(0),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\n",
                &get,
                Framing::Length(5),
                false,
            ),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", &get, Framing::Length(5), false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
                &get,
                Framing::Length(5),
                true,
            ),
        ] {
            let head = read(text, method).unwrap().unwrap();
            assert_eq!((head.framing, head.is_kept), (framing, is_kept), "{text:?}");
            let has_length = head.parts.headers.contains_key("content-length");
            assert_eq!(has_length, text.contains("Length") && !text.contains("hunked"), "{text:?}");
        }
    }

    #[test]
    fn w3_a_head_that_could_be_read_in_two_ways_is_not_read() {
        // Seen to fail: with the second of two lengths taken.
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "no such protocol\r\n\r\n",
        ] {
            assert_eq!(read(text, &Method::GET).map(|_| ()), Err(Malformed), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LARGEST));
        assert_eq!(read(&endless, &Method::GET).map(|_| ()), Err(Malformed));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(MOST_HEADERS + 1));
        assert_eq!(read(&many, &Method::GET).map(|_| ()), Err(Malformed));
    }

    #[test]
    fn w3_a_head_is_read_when_it_is_all_there_and_what_belongs_to_one_connection_is_left_out() {
        // Seen to fail: without the names that `Connection` lists.
        let text = "HTTP/1.1 418 Short and stout\r\nConnection: X-Mine, content-length\r\nX-Mine: 1\r\nKeep-Alive: 1\r\n\
                    Upgrade: h2c\r\nTE: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 1\r\n\r\n!rest";
        let length = text.find('!').unwrap();
        for part in 1..length {
            assert!(read(&text[..part], &Method::GET).unwrap().is_none(), "{part}");
        }
        let mut input = BytesMut::from(text);
        let head = Head::read(&mut input, &Method::GET, 8).unwrap().unwrap();
        assert_eq!(&input[..], b"!rest");
        let mut names: Vec<_> = head.parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "set-cookie"]);
        assert_eq!(head.parts.headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(head.parts.extensions.get::<ReasonPhrase>().unwrap().as_bytes(), b"Short and stout");
    }
}
