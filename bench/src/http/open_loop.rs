//! Load by a fixed schedule, whatever becomes of it: so many requests a second, each due at its moment.
//!
//! A time is counted from the moment a request was *due*, not from when it was sent: a server that stops for a while makes
//! all that were due wait, and so it is told. One thread sends and another reads what comes back; both go
//! before what they measure, if they may.

use std::{
    collections::VecDeque,
    io::{self, Write},
    net::{SocketAddr, TcpStream as Writer},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{io::AsyncReadExt, net::TcpStream, runtime::Builder};

use super::{tools, wire::Incoming};

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Requests per second.
    pub(super) rate: u32,
    /// How long it takes to settle, and is not counted.
    pub(super) lead: Duration,
    /// How long it is counted.
    pub(super) length: Duration,
    /// How many connections there are to choose a free one from.
    pub(super) connections: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How long those took that were served, in the order of their length.
    pub(super) served: Vec<Duration>,
    /// The same of those that were refused.
    pub(super) refused: Vec<Duration>,
    /// How many got no answer.
    pub(super) failed: u64,
    /// How many were served in a second.
    pub(super) goodput: f64,
    /// How late requests were sent, in the order of their lateness.
    pub(super) late: Vec<Duration>,
}

/// How long we wait for answers after the last request.
const GRACE: Duration = Duration::from_secs(2);
/// How long to wait for a connection to be free before asking again.
const PAUSE: Duration = Duration::from_micros(50);
/// On a connection with no request under way.
const NOTHING: u64 = u64::MAX;

/// One answer, in nanoseconds since the start.
struct Record {
    due: u64,
    done: u64,
    is_served: bool,
}

/// A connection, as the sender sees it.
struct Line {
    writer: Mutex<Writer>,
    /// When the request under way on it was due.
    due: AtomicU64,
}

struct Shared {
    address: SocketAddr,
    start: Instant,
    lines: Vec<Line>,
    free: Mutex<VecDeque<usize>>,
    records: Mutex<Vec<Record>>,
    failed: AtomicU64,
}

/// Sends the same request by the schedule.
pub(super) fn drive(address: SocketAddr, request: &[u8], schedule: &Schedule) -> Result<Seen, String> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().on_thread_start(|| {
        tools::go_first();
    });
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let opened = runtime.block_on(open_all(address, schedule.connections));
    let opened = opened.map_err(|error| format!("no connection: {error}"))?;
    let (readers, lines): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let shared = Arc::new(Shared {
        address,
        start: Instant::now(),
        free: Mutex::new((0..lines.len()).collect()),
        lines,
        records: Mutex::default(),
        failed: AtomicU64::new(0),
    });
    for (index, reader) in readers.into_iter().enumerate() {
        runtime.spawn(read(index, reader, Arc::clone(&shared)));
    }
    let (sent, late) = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            tools::go_first();
            send(&shared, request, schedule)
        });
        sender.join().map_err(|_| "the sender panicked".to_owned())
    })?;
    let end = Instant::now() + GRACE;
    while Instant::now() < end && answered(&shared) < sent {
        thread::sleep(Duration::from_millis(5));
    }
    let unanswered = sent.saturating_sub(answered(&shared));
    runtime.shutdown_background();
    Ok(seen(&shared, schedule, unanswered, late))
}

fn answered(shared: &Shared) -> u64 {
    lock(&shared.records).len() as u64 + shared.failed.load(Ordering::Relaxed)
}

async fn open_all(address: SocketAddr, count: usize) -> io::Result<Vec<(TcpStream, Line)>> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let (reader, writer) = open(address).await?;
        all.push((reader, Line { writer: Mutex::new(writer), due: AtomicU64::new(NOTHING) }));
    }
    Ok(all)
}

/// A connection, once for the reader and once for the sender.
async fn open(address: SocketAddr) -> io::Result<(TcpStream, Writer)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let writer = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, writer))
}

/// Sends each request when it is due, or as soon after as a connection is free. Says how many, and how late.
fn send(shared: &Shared, request: &[u8], schedule: &Schedule) -> (u64, Vec<Duration>) {
    let count = (f64::from(schedule.rate) * (schedule.lead + schedule.length).as_secs_f64()) as u64;
    let mut late = Vec::with_capacity(count as usize);
    for number in 0..count {
        let due = Duration::from_nanos(number * 1_000_000_000 / u64::from(schedule.rate));
        sleep_until(shared.start + due);
        let index = loop {
            match lock(&shared.free).pop_front() {
                Some(index) => break index,
                None if shared.start.elapsed() > schedule.lead + schedule.length + GRACE => {
                    return (number, late);
                }
                None => thread::sleep(PAUSE),
            }
        };
        let line = &shared.lines[index];
        line.due.store(due.as_nanos() as u64, Ordering::Release);
        late.push(shared.start.elapsed().saturating_sub(due));
        // Where it fails, the reader finds the connection closed, and counts it.
        let _ = lock(&line.writer).write_all(request);
    }
    (count, late)
}

/// Late by some 50 microseconds, which are counted: spinning instead would take a processor from those who are measured.
fn sleep_until(moment: Instant) {
    let wait = moment.saturating_duration_since(Instant::now());
    if !wait.is_zero() {
        thread::sleep(wait);
    }
}

/// Reads what comes on one connection, and opens it again if it is closed.
async fn read(index: usize, mut stream: TcpStream, shared: Arc<Shared>) {
    loop {
        serve(index, &mut stream, &shared).await;
        if shared.lines[index].due.swap(NOTHING, Ordering::AcqRel) != NOTHING {
            shared.failed.fetch_add(1, Ordering::Relaxed);
        }
        let Ok((reader, writer)) = open(shared.address).await else { return };
        stream = reader;
        *lock(&shared.lines[index].writer) = writer;
        lock(&shared.free).push_back(index);
    }
}

/// Reads answers until the connection is closed, by them or by us.
async fn serve(index: usize, stream: &mut TcpStream, shared: &Shared) {
    let mut incoming = Incoming::default();
    let mut buffer = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        incoming.add(&buffer[..count]);
        let answer = match incoming.answer() {
            Ok(Some(answer)) => answer,
            Ok(None) => continue,
            Err(_) => return,
        };
        let done = shared.start.elapsed().as_nanos() as u64;
        let due = shared.lines[index].due.swap(NOTHING, Ordering::AcqRel);
        lock(&shared.records).push(Record { due, done, is_served: answer.is_well() });
        if answer.closes() {
            return;
        }
        lock(&shared.free).push_back(index);
    }
}

fn seen(shared: &Shared, schedule: &Schedule, unanswered: u64, mut late: Vec<Duration>) -> Seen {
    let (from, to) = (schedule.lead.as_nanos() as u64, (schedule.lead + schedule.length).as_nanos() as u64);
    let failed = shared.failed.load(Ordering::Relaxed) + unanswered;
    let mut seen = Seen { failed, ..Seen::default() };
    let mut served_in_time = 0_u64;
    for record in lock(&shared.records).iter() {
        served_in_time += u64::from(record.is_served && (from..to).contains(&record.done));
        if (from..to).contains(&record.due) {
            let took = Duration::from_nanos(record.done.saturating_sub(record.due));
            if record.is_served { seen.served.push(took) } else { seen.refused.push(took) }
        }
    }
    seen.goodput = served_in_time as f64 / schedule.length.as_secs_f64();
    seen.served.sort_unstable();
    seen.refused.sort_unstable();
    late.sort_unstable();
    Seen { late, ..seen }
}

/// The time that 99 of 100 stay within, in milliseconds; the times are in order.
pub(super) fn p99(times: &[Duration]) -> f64 {
    let rank = (times.len() * 99).div_ceil(100).max(1) - 1;
    times.get(rank).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::p99;

    #[test]
    fn of_a_hundred_the_ninety_ninth() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(p99(&times), 99.0);
        assert_eq!(p99(&times[..1]), 1.0);
        assert!(p99(&[]).is_nan());
    }
}
