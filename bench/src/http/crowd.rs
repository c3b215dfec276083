//! Clients that behave badly, many at once: a flood of keys, slow readers, and those who never finish to ask.
//!
//! Owns how they behave. They run on threads of their own and hang up when they are dropped.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::{Builder, Runtime},
    sync::Semaphore,
    time,
};

use super::{
    proxies::{PATH, request},
    upstream::BIG,
    wire::ask_async,
};

/// How often the slow ones do something.
const TICK: Duration = Duration::from_millis(500);
/// What a slow reader has room for before it stops the other side.
const ROOM: u32 = 4_096;
const BITE: usize = 16;
/// How many of a crowd connect at once.
const AT_ONCE: usize = 128;
/// How many connections a flood comes on.
const FLOODING: u64 = 32;

/// What the crowd has seen so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) served: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Connections that the other side closed.
    pub(super) closed: AtomicU64,
}

impl Tally {
    /// How many have come to something.
    fn count(&self) -> u64 {
        [&self.served, &self.refused, &self.failed].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, status: &io::Result<u16>) {
        let count = match status {
            Ok(200) => &self.served,
            Ok(_) => &self.refused,
            Err(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Clients on a thread of their own.
pub(super) struct Crowd {
    runtime: Option<Runtime>,
    pub(super) tally: Arc<Tally>,
    expected: u64,
}

impl Crowd {
    fn new(expected: u64) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("there is no thread for a crowd: {error}"))?;
        Ok(Crowd { runtime: Some(runtime), tally: Arc::default(), expected })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the crowd is dropped")
    }

    /// So many clients that ask for a long body and read it a few bytes at a time; `keys` keys among them.
    pub(super) fn slow_readers(address: SocketAddr, count: u64, keys: u64) -> Result<Self, String> {
        let crowd = Crowd::new(count)?;
        let turn = Arc::new(Semaphore::new(AT_ONCE));
        for number in 0..count {
            let (tally, turn) = (Arc::clone(&crowd.tally), Arc::clone(&turn));
            let request = request(BIG, &slow_key(number % keys));
            crowd.runtime().spawn(async move {
                let started = {
                    let _permit = turn.acquire().await;
                    begin_to_read(address, &request).await
                };
                tally.add(&started.as_ref().map(|(_, status)| *status).map_err(|error| error.kind().into()));
                let Ok((mut stream, _)) = started else { return };
                let mut bite = [0; BITE];
                while let Ok(1..) = stream.read(&mut bite).await {
                    time::sleep(TICK).await;
                }
                tally.closed.fetch_add(1, Ordering::Relaxed);
            });
        }
        Ok(crowd)
    }

    /// So many clients that send the head of a request one byte at a time, and never the end of it.
    pub(super) fn slow_loris(address: SocketAddr, count: u64) -> Result<Self, String> {
        let crowd = Crowd::new(count)?;
        for _ in 0..count {
            let tally = Arc::clone(&crowd.tally);
            crowd.runtime().spawn(async move {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    return tally.add(&Err(io::ErrorKind::ConnectionRefused.into()));
                };
                let started = stream.write_all(b"GET /v1/x HTTP/1.1\r\nX-Slow: ").await;
                tally.add(&started.map(|()| 200));
                let mut answer = [0; 1_024];
                loop {
                    let is_written = stream.write_all(b"a").await.is_ok();
                    let heard = time::timeout(TICK, stream.read(&mut answer)).await;
                    // Closed, or told to go away and then closed.
                    if !is_written || matches!(heard, Ok(Ok(0) | Err(_))) {
                        tally.closed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        Ok(crowd)
    }

    /// So many requests, as fast as they are answered, each with a key of its own.
    pub(super) fn flood(address: SocketAddr, wave: &'static str, count: u64) -> Result<Self, String> {
        let crowd = Crowd::new(count)?;
        let next = Arc::new(AtomicU64::new(0));
        for _ in 0..FLOODING {
            let (tally, next) = (Arc::clone(&crowd.tally), Arc::clone(&next));
            crowd.runtime().spawn(async move {
                let mut stream = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let status = ask_on(&mut stream, address, &request(PATH, &flood_key(wave, number))).await;
                    tally.add(&status);
                }
            });
        }
        Ok(crowd)
    }

    /// Waits until everybody has come to something, or time is up; says how many have.
    pub(super) fn wait(&self, at_most: Duration) -> u64 {
        let end = Instant::now() + at_most;
        while self.tally.count() < self.expected && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        self.tally.count()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // All hang up.
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// The key of slow readers.
pub(super) fn slow_key(number: u64) -> String {
    format!("slow-{number}")
}

/// A key that comes once.
pub(super) fn flood_key(wave: &str, number: u64) -> String {
    format!("{wave}-{number}")
}

/// Asks, and reads no more than the first line.
async fn begin_to_read(address: SocketAddr, request: &[u8]) -> io::Result<(TcpStream, u16)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(ROOM)?;
    let mut stream = socket.connect(address).await?;
    stream.write_all(request).await?;
    let mut line = [0; BITE];
    stream.read_exact(&mut line).await?;
    let status = std::str::from_utf8(&line[9..12]).ok().and_then(|status| status.parse().ok());
    Ok((stream, status.ok_or(io::ErrorKind::InvalidData)?))
}

/// Asks on the connection there is, or on a new one.
async fn ask_on(stream: &mut Option<TcpStream>, address: SocketAddr, request: &[u8]) -> io::Result<u16> {
    let mut open = match stream.take() {
        Some(open) => open,
        None => TcpStream::connect(address).await?,
    };
    let answer = ask_async(&mut open, request).await?;
    if !answer.closes() {
        *stream = Some(open);
    }
    Ok(answer.status)
}
