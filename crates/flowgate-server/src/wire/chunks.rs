//! Bodies that come in chunks (RFC 9112, 7.1).
//!
//! Owns finding their pieces and their end. It is strict: what is not written as the standard has it is no body.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::head::Malformed;

/// A size, and whatever stands behind it.
const LONGEST_LINE: usize = 1024;
const LARGEST_TRAILERS: usize = 16 << 10;
const MOST_TRAILERS: usize = 64;

/// Where in such a body we are.
#[derive(Debug, Default)]
pub(super) enum Chunks {
    #[default]
    Size,
    Data(u64),
    /// The line that ends a chunk.
    DataEnd,
    Trailers,
    Over,
}

/// The next of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// More has to be read first.
    Missing,
    Over,
}

impl Chunks {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Chunks::Over)
    }

    /// The next piece of what has been read.
    pub(super) fn next(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            match self {
                Chunks::Size => match size(input)? {
                    None => return Ok(Piece::Missing),
                    Some(0) => *self = Chunks::Trailers,
                    Some(size) => *self = Chunks::Data(size),
                },
                Chunks::Data(_) if input.is_empty() => return Ok(Piece::Missing),
                Chunks::Data(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Chunks::DataEnd;
                    }
                    return Ok(Piece::Data(input.split_to(taken).freeze()));
                }
                Chunks::DataEnd => match input[..] {
                    [b'\r', b'\n', ..] => {
                        input.advance(2);
                        *self = Chunks::Size;
                    }
                    [] | [b'\r'] => return Ok(Piece::Missing),
                    _ => return Err(Malformed),
                },
                Chunks::Trailers => return self.trailers(input),
                Chunks::Over => return Ok(Piece::Over),
            }
        }
    }

    fn trailers(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        if input.starts_with(b"\r\n") {
            input.advance(2);
            *self = Chunks::Over;
            return Ok(Piece::Over);
        }
        let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return if input.len() > LARGEST_TRAILERS { Err(Malformed) } else { Ok(Piece::Missing) };
        };
        let text = input.split_to(end + 4).freeze();
        let mut lines = [httparse::EMPTY_HEADER; MOST_TRAILERS];
        let mut trailers = HeaderMap::new();
        match httparse::parse_headers(&text, &mut lines) {
            Ok(httparse::Status::Complete((_, lines))) => {
                for line in lines {
                    let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Malformed)?;
                    let value = HeaderValue::from_bytes(line.value).map_err(|_| Malformed)?;
                    trailers.append(name, value);
                }
            }
            Ok(httparse::Status::Partial) | Err(_) => return Err(Malformed),
        }
        *self = Chunks::Over;
        Ok(Piece::Trailers(trailers))
    }
}

/// The size of the next chunk, if its line is there.
fn size(input: &mut BytesMut) -> Result<Option<u64>, Malformed> {
    let Some(end) = input.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if input.len() >= LONGEST_LINE { Err(Malformed) } else { Ok(None) };
    };
    let line = input[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // What may stand behind a size (`;name=value`) says nothing to us, but has to be there as such.
    let rest = line[digits..].trim_ascii_start();
    let is_extension = rest.is_empty() || rest.starts_with(b";");
    if !(1..=16).contains(&digits) || !is_extension || rest.iter().any(|byte| byte.is_ascii_control()) {
        return Err(Malformed);
    }
    let digits = str::from_utf8(&line[..digits]).map_err(|_| Malformed)?;
    let size = u64::from_str_radix(digits, 16).map_err(|_| Malformed)?;
    input.advance(end + 1);
    Ok(Some(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a body that comes in pieces of so many bytes: the data, the trailers, and what is left behind its end.
    fn read(text: &str, step: usize) -> Result<(String, Vec<String>, String), Malformed> {
        let (mut chunks, mut input) = (Chunks::default(), BytesMut::new());
        let (mut data, mut trailers) = (String::new(), Vec::new());
        let mut rest = text.as_bytes().chunks(step);
        loop {
            match chunks.next(&mut input)? {
                Piece::Data(piece) => data += str::from_utf8(&piece).unwrap(),
                Piece::Trailers(map) => trailers = map.keys().map(ToString::to_string).collect(),
                Piece::Over => break,
                Piece::Missing => match rest.next() {
                    Some(piece) => input.extend_from_slice(piece),
                    None => return Err(Malformed),
                },
            }
        }
        let left: Vec<u8> = input.iter().copied().chain(rest.flatten().copied()).collect();
        Ok((data, trailers, String::from_utf8(left).unwrap()))
    }

    #[test]
    fn w3_chunks_are_read_the_same_however_they_arrive() {
        // Seen to fail: with `DataEnd` taking a lone `\r` for malformed.
        for (text, data, trailers) in [
            ("0\r\n\r\n", "", vec![]),
            ("2\r\nok\r\n0\r\n\r\n", "ok", vec![]),
            ("002\r\nok\r\n1;a=b\r\n!\r\n1 ; a\r\n!\r\n00\r\n\r\n", "ok!!", vec![]),
            ("A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nx-end: 2\r\n\r\n", "0123456789", vec!["x-sum", "x-end"]),
        ] {
            for step in 1..=text.len() {
                let (read_data, read_trailers, left) = read(&format!("{text}GET"), step).unwrap();
                assert_eq!((read_data.as_str(), left.as_str()), (data, "GET"), "{text:?} by {step}");
                assert_eq!(read_trailers, trailers, "{text:?} by {step}");
            }
        }
    }

    #[test]
    fn w3_what_is_not_quite_chunks_is_no_body() {
        // Seen to fail: with a bare `\n` taken for the end of a line.
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\na\r\n0\r\n\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "1 a\r\na\r\n0\r\n\r\n",
            "1\na\n0\n\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n\r\n0\r\n\r\n",
            "11111111111111111\r\n",
            "1;\u{1}\r\na\r\n0\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\nx : 1\r\n\r\n",
        ] {
            for step in 1..=text.len() {
                assert_eq!(read(text, step), Err(Malformed), "{text:?} by {step}");
            }
        }
        assert_eq!(read(&"1".repeat(2_000), 100), Err(Malformed), "a line without an end");
        let trailers = format!("0\r\n{}", "x: y\r\n".repeat(10_000));
        assert_eq!(read(&trailers, 1_000), Err(Malformed), "trailers without an end");
    }
}
