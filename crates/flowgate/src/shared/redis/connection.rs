//! One connection to Redis, and as much of its protocol as the store needs.
//!
//! Owns the address, RESP3 both ways, and what the server says unasked, which in RESP3 comes on the same
//! connection as the answers.

use std::collections::VecDeque;

use flowgate_core::OptionError;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::shared::store::StoreError;

/// Nothing we ask for is larger: a document of a million waiters, each a run of its own.
const LONGEST: usize = 64 << 20;
/// So much that is said unasked is kept. Whoever missed something looks at everything.
const MOST_PUSHES: usize = 1024;
/// Nothing that is asked for here has lists in lists in lists.
const DEEPEST: u32 = 8;

/// Where a Redis is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
    login: Option<(String, String)>,
    database: u32,
}

/// What Redis says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nothing,
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Error(String),
    /// Said unasked.
    Push(Vec<Value>),
}

pub(super) struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
    pushes: VecDeque<Vec<Value>>,
    /// More was said than is kept.
    has_missed: bool,
}

impl Address {
    /// Reads `redis://user:password@host:port/database`, of which only the host has to be there.
    pub(super) fn parse(url: &str) -> Result<Self, OptionError> {
        // What is wrong may be the password: the value is not told.
        let wrong = |what: &'static str| OptionError::new("store", "not a Redis address", what);
        let rest =
            url.strip_prefix("redis://").ok_or_else(|| wrong("an address that begins with `redis://`"))?;
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = if database.is_empty() { Ok(0) } else { database.parse() };
        let database = database.map_err(|_| wrong("a database number after the slash"))?;
        let (login, place) = match place.rsplit_once('@') {
            None => (None, place),
            Some((login, place)) => {
                let (user, password) = login.split_once(':').unwrap_or(("", login));
                let user = if user.is_empty() { "default" } else { user };
                (Some((decoded(user), decoded(password))), place)
            }
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("a port from 1 to 65535 after the host"))?)
            }
            _ => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("an address with a host"));
        }
        Ok(Address { host: host.to_owned(), port, login, database })
    }
}

/// What `%2F` and the like stand for.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Connection {
    pub(super) async fn open(address: &Address) -> Result<Self, StoreError> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let mut connection =
            Connection { stream, inbox: Vec::new(), pushes: VecDeque::new(), has_missed: false };
        match &address.login {
            None => connection.call(&[b"HELLO", b"3"]).await?,
            Some((user, password)) => {
                connection.call(&[b"HELLO", b"3", b"AUTH", user.as_bytes(), password.as_bytes()]).await?
            }
        };
        if address.database > 0 {
            connection.call(&[b"SELECT", address.database.to_string().as_bytes()]).await?;
        }
        Ok(connection)
    }

    /// One command, and its answer.
    pub(super) async fn call(&mut self, words: &[&[u8]]) -> Result<Value, StoreError> {
        self.send(words).await?;
        loop {
            match self.next().await? {
                Value::Push(said) => self.keep(said),
                Value::Error(said) => return Err(StoreError::Refused(said)),
                answer => return Ok(answer),
            }
        }
    }

    /// One command whose answer comes as if unasked.
    pub(super) async fn send(&mut self, words: &[&[u8]]) -> Result<(), StoreError> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&command).await.map_err(broken)
    }

    /// Waits until something is said unasked. Dropped, it loses nothing.
    pub(super) async fn listen(&mut self) -> Result<(), StoreError> {
        while self.pushes.is_empty() {
            if let Value::Push(said) = self.next().await? {
                self.keep(said);
            }
        }
        Ok(())
    }

    /// What was said unasked.
    pub(super) fn pushed(&mut self) -> Option<Vec<Value>> {
        self.pushes.pop_front()
    }

    /// Whether more was said than is kept, since it was last asked.
    pub(super) fn has_missed(&mut self) -> bool {
        std::mem::take(&mut self.has_missed)
    }

    fn keep(&mut self, said: Vec<Value>) {
        if self.pushes.len() == MOST_PUSHES {
            self.pushes.clear();
            self.has_missed = true;
        }
        self.pushes.push_back(said);
    }

    /// The next that is said. Dropped, what has come so far stays in the inbox.
    async fn next(&mut self) -> Result<Value, StoreError> {
        loop {
            let mut reader = Reader { bytes: &self.inbox, at: 0, depth: 0 };
            match reader.value() {
                Ok(value) => {
                    let read = reader.at;
                    self.inbox.drain(..read);
                    return Ok(value);
                }
                Err(Short::Wrong) => {
                    return Err(StoreError::Unreachable("it does not speak the Redis protocol".into()));
                }
                Err(Short::More) if self.inbox.len() > LONGEST => {
                    return Err(StoreError::Unreachable("it sent more than was asked for".into()));
                }
                Err(Short::More) => {}
            }
            self.inbox.reserve(16 << 10);
            if self.stream.read_buf(&mut self.inbox).await.map_err(broken)? == 0 {
                return Err(StoreError::Unreachable("it closed the connection".into()));
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn broken(error: std::io::Error) -> StoreError {
    StoreError::Unreachable(error.to_string())
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many lists it is in.
    depth: u32,
}

/// Why there is no value.
#[derive(Debug, PartialEq, Eq)]
enum Short {
    More,
    Wrong,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Value, Short> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or(Short::Wrong)?;
        match kind {
            "+" | "," | "(" => Ok(Value::Bytes(rest.as_bytes().to_vec())),
            "-" => Ok(Value::Error(rest.to_owned())),
            ":" => rest.parse().map(Value::Number).map_err(|_| Short::Wrong),
            "#" => Ok(Value::Number(i64::from(rest == "t"))),
            "_" => Ok(Value::Nothing),
            "$" | "=" if rest == "-1" => Ok(Value::Nothing),
            "$" | "=" => {
                let length = number(rest)?;
                let bytes = self.bytes.get(self.at..self.at + length).ok_or(Short::More)?.to_vec();
                if self.bytes.len() < self.at + length + 2 {
                    return Err(Short::More);
                }
                self.at += length + 2;
                Ok(Value::Bytes(bytes))
            }
            "*" | "~" if rest == "-1" => Ok(Value::Nothing),
            "*" | "~" => self.list(number(rest)?).map(Value::List),
            "%" => self.list(2 * number(rest)?).map(Value::List),
            ">" => self.list(number(rest)?).map(Value::Push),
            _ => Err(Short::Wrong),
        }
    }

    fn list(&mut self, length: usize) -> Result<Vec<Value>, Short> {
        if self.depth == DEEPEST {
            return Err(Short::Wrong);
        }
        self.depth += 1;
        let list = (0..length).map(|_| self.value()).collect();
        self.depth -= 1;
        list
    }

    fn line(&mut self) -> Result<String, Short> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Short::More)?;
        self.at += end + 2;
        String::from_utf8(rest[..end].to_vec()).map_err(|_| Short::Wrong)
    }
}

fn number(text: &str) -> Result<usize, Short> {
    text.parse().ok().filter(|number| *number <= LONGEST).ok_or(Short::Wrong)
}

#[cfg(test)]
mod tests {
    use super::{Address, Reader, Short, Value};

    fn read(said: &str) -> Result<(Value, usize), Short> {
        let mut reader = Reader { bytes: said.as_bytes(), at: 0, depth: 0 };
        reader.value().map(|value| (value, reader.at))
    }

    #[test]
    fn whatever_redis_says_is_read_once_all_of_it_has_come() {
        // Seen to fail: with the two bytes behind a text not waited for, its last prefix was taken for the whole.
        let said = "*4\r\n:12\r\n$3\r\na\r\n\r\n_\r\n>2\r\n+ok\r\n$-1\r\n";
        let list = Value::List(vec![
            Value::Number(12),
            Value::Bytes(b"a\r\n".to_vec()),
            Value::Nothing,
            Value::Push(vec![Value::Bytes(b"ok".to_vec()), Value::Nothing]),
        ]);
        assert_eq!(read(&format!("{said}:1\r\n")), Ok((list, said.len())));
        for end in 0..said.len() {
            assert_eq!(read(&said[..end]), Err(Short::More), "{:?}", &said[..end]);
        }
        assert_eq!(read("-ERR no\r\n"), Ok((Value::Error("ERR no".into()), 9)));
        for wrong in ["?\r\n", "\r\n", "$x\r\n", "$99999999999\r\n", ":\r\n"] {
            assert_eq!(read(wrong), Err(Short::Wrong), "{wrong:?}");
        }
    }

    #[test]
    fn s2_an_address_is_read_or_said_to_be_wrong_without_its_password() {
        // Seen to fail: with the value in the error, the password was told.
        let full = Address::parse("redis://app:p%40ss@[::1]:6380/2").unwrap();
        let expected = Address {
            host: "::1".into(),
            port: 6380,
            login: Some(("app".into(), "p@ss".into())),
            database: 2,
        };
        assert_eq!(full, expected);
        let plain = Address { host: "db".into(), port: 6379, login: None, database: 0 };
        assert_eq!(Address::parse("redis://db").unwrap(), plain);
        for wrong in ["redis://:secret@", "redis://x:secret@host:70000", "redis://x:secret@host/db"] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("store") && !error.contains("secret"), "{error}");
        }
    }
}
