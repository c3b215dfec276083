//! The usual recipes, as they are written again and again, and ours behind the same steps.
//!
//! A semaphore on Redis is a sorted set of holders with the moments they came, and a script that forgets the late ones,
//! counts and adds; who finds it full tries again a little later. On PostgreSQL it is one advisory lock for each slot,
//! held by a session; who finds all taken waits for one of them. A rate on Redis is `INCR`, and `EXPIRE` when it is the
//! first; on PostgreSQL a row that is added to. Each caller has a connection of its own. What they do not have: one
//! line, slots of the dead that come back as soon, a bound that holds while they do, limits that change.

use std::{fmt::Display, time::Duration};

use flowgate::shared::{Gate, KeyedGate};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_postgres::{Client, NoTls};

use super::stage::Store;

/// How many may be in.
pub(super) const MAX: u32 = 8;
/// More than all of them ever do.
const RATE: u32 = 100_000_000;

const TAKE: &str = "local time = redis.call('TIME'); local now = time[1] * 1000 + math.floor(time[2] / 1000) \
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 15000) \
    if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then redis.call('ZADD', KEYS[1], now, ARGV[2]) return 1 end \
    return 0";

/// Who bounds the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Ours,
    Recipe,
}

/// The way in, for one caller.
pub(super) enum Door {
    Ours(KeyedGate),
    Zset { redis: Redis, sha: String, own: String, max: u32 },
    Advisory { client: Client, slot: i32 },
}

/// What one who is in has to give back.
pub(super) enum Held {
    Ours(#[expect(dead_code, reason = "it is dropped")] flowgate::shared::Pass),
    Recipe,
}

/// Our gate, for one process.
pub(super) async fn gate(url: &str, name: &str) -> Result<KeyedGate, String> {
    Gate::builder(url).name(name).max(MAX).keyed().max_keys(20_000).start().await.map_err(told)
}

/// Our gate with slots for everybody.
pub(super) async fn wide_gate(url: &str, name: &str) -> Result<KeyedGate, String> {
    Gate::builder(url).name(name).max(1_000_000).keyed().start().await.map_err(told)
}

/// Our gate with a rate that nobody reaches.
pub(super) async fn rated(url: &str) -> Result<KeyedGate, String> {
    Gate::builder(url).name("rate").rate(RATE, "1h").reject().keyed().start().await.map_err(told)
}

impl Door {
    /// The recipe's, for the caller of this number.
    pub(super) async fn recipe(store: Store, url: &str, number: u32) -> Result<Self, String> {
        match store {
            Store::Redis => {
                let mut redis = Redis::connect(url).await?;
                let sha = redis.call(&["SCRIPT", "LOAD", TAKE]).await?;
                let own = format!("{}-{number}", std::process::id());
                Ok(Door::Zset { redis, sha, own, max: MAX })
            }
            Store::Postgres => {
                Ok(Door::Advisory { client: session(url).await?, slot: (number % MAX).cast_signed() })
            }
        }
    }

    /// The same with slots for everybody.
    pub(super) fn wide(self) -> Self {
        match self {
            Door::Zset { redis, sha, own, .. } => Door::Zset { redis, sha, own, max: 1_000_000 },
            other => other,
        }
    }

    /// In, however long that takes.
    pub(super) async fn enter(&mut self, key: &str) -> Result<Held, String> {
        match self {
            Door::Ours(gate) => gate.enter_key(key).await.map(Held::Ours).map_err(told),
            Door::Zset { redis, sha, own, max } => {
                while redis.call(&["EVALSHA", sha, "1", key, &max.to_string(), own]).await? != "1" {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(Held::Recipe)
            }
            Door::Advisory { client, slot } => {
                client.execute("SELECT pg_advisory_lock(7, $1)", &[slot]).await.map_err(told)?;
                Ok(Held::Recipe)
            }
        }
    }

    /// Out again.
    pub(super) async fn leave(&mut self, key: &str, held: Held) -> Result<(), String> {
        match self {
            Door::Ours(_) => drop(held),
            Door::Zset { redis, own, .. } => drop(redis.call(&["ZREM", key, own]).await?),
            Door::Advisory { client, slot } => {
                client.execute("SELECT pg_advisory_unlock(7, $1)", &[slot]).await.map_err(told)?;
            }
        }
        Ok(())
    }
}

/// A connection on which one command is asked after the other.
pub(super) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(super) async fn connect(url: &str) -> Result<Self, String> {
        let place = url.trim_start_matches("redis://").trim_end_matches("/0");
        let stream = TcpStream::connect(place).await.map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        Ok(Redis(BufReader::new(stream)))
    }

    /// A command, and what is answered: a number or a text.
    pub(super) async fn call(&mut self, words: &[&str]) -> Result<String, String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(command.as_bytes()).await.map_err(told)?;
        let mut line = String::new();
        self.0.read_line(&mut line).await.map_err(told)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("-", error)) => Err(error.to_owned()),
            Some(("$", length)) => {
                let mut text = vec![0; length.parse::<usize>().map_err(told)? + 2];
                self.0.read_exact(&mut text).await.map_err(told)?;
                Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
            }
            Some((_, answer)) => Ok(answer.to_owned()),
            None => Err("Redis closed the connection".to_owned()),
        }
    }
}

/// A session of PostgreSQL, read by a task of this runtime.
pub(super) async fn session(url: &str) -> Result<Client, String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(told)?;
    tokio::spawn(connection);
    Ok(client)
}

pub(super) fn told(error: impl Display) -> String {
    error.to_string()
}
