//! An upstream that collapses under load, with and without the gateway in front of it.
//!
//! `cargo build --release && cargo run --release --package flowgate-server --example fragile_upstream` starts it, sends it twice
//! what it can take, directly and then through `flowgate serve`, and prints what came of both. With `--stay` it only serves, on
//! 127.0.0.1:9000, for docs/examples/fragile.toml.
#![allow(clippy::print_stdout, reason = "an example is for reading")]

use std::{
    convert::Infallible,
    error::Error,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

type AnyError = Box<dyn Error + Send + Sync>;

/// It does 32 at once in 20 ms each; each one more makes all of them slower.
const COMFORT: usize = 32;
const WORK: Duration = Duration::from_millis(20);
/// Clients, each asking again as soon as it has an answer.
const CLIENTS: usize = 128;
const FOR: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Upstream {
    in_flight: AtomicUsize,
    most: AtomicUsize,
}

impl Upstream {
    async fn answer(self: Arc<Self>, _: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let excess = now.saturating_sub(COMFORT) as u32;
        tokio::time::sleep(WORK + WORK * excess / 4).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        Ok(Response::new(Full::from("done\n")))
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), AnyError> {
        loop {
            let (stream, _) = listener.accept().await?;
            let upstream = Arc::clone(&self);
            let service = service_fn(move |request| Arc::clone(&upstream).answer(request));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let upstream = Arc::new(Upstream::default());
    if std::env::args().any(|argument| argument == "--stay") {
        println!("A fragile upstream on http://127.0.0.1:9000, until Ctrl-C");
        return upstream.serve(TcpListener::bind("127.0.0.1:9000").await?).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(Arc::clone(&upstream).serve(listener));

    println!("{CLIENTS} clients for {} s, an upstream that likes {COMFORT} at once:", FOR.as_secs());
    let direct = load(address).await?;
    println!("  directly:    {direct}, {:3} at once at most", upstream.most.swap(0, Ordering::SeqCst));
    let gateway = Gateway::start(address)?;
    let guarded = load(gateway.address).await?;
    println!("  by the gate: {guarded}, {:3} at once at most", upstream.most.load(Ordering::SeqCst));
    Ok(())
}

/// `flowgate serve` in front of the upstream; ends with this value.
struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    fn start(upstream: SocketAddr) -> Result<Self, AnyError> {
        let config = std::env::temp_dir().join(format!("flowgate-example-{}.toml", std::process::id()));
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/fragile.toml");
        let text = std::fs::read_to_string(here)?.replace("127.0.0.1:9000", &upstream.to_string());
        std::fs::write(&config, text)?;
        let mut process = Command::new(beside("flowgate")?)
            .args([
                "serve",
                "--store",
                "sqlite::memory:",
                "--listen",
                "127.0.0.1:0",
                "--gateway-listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()?;
        let told = BufReader::new(process.stdout.take().ok_or("no output")?);
        let address = told.lines().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("gateway")?.1.split_once("http://")?;
            rest.split(['/', ' ']).next()?.parse().ok()
        });
        std::fs::remove_file(&config)?;
        Ok(Gateway { process, address: address.ok_or("flowgate did not say where its gateway is")? })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that cargo has built beside this one.
fn beside(name: &str) -> Result<PathBuf, AnyError> {
    let here = std::env::current_exe()?;
    let program = here.ancestors().nth(2).ok_or("no folder")?.join(name);
    if program.exists() { Ok(program) } else { Err(format!("build it first: {}", program.display()).into()) }
}

/// What came of it.
#[derive(Default)]
struct Tally {
    done: Vec<Duration>,
    refused: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut times = self.done.clone();
        times.sort_unstable();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
        let per_second = times.len() as f64 / FOR.as_secs_f64();
        write!(f, "{per_second:5.0} done/s, p99 {:4} ms, {:5} refused", p99.as_millis(), self.refused)
    }
}

async fn load(to: SocketAddr) -> Result<Tally, AnyError> {
    let until = Instant::now() + FOR;
    let mut clients: JoinSet<Result<Tally, AnyError>> = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(client(to, until));
    }
    let mut all = Tally::default();
    while let Some(one) = clients.join_next().await {
        let one = one??;
        all.done.extend(one.done);
        all.refused += one.refused;
    }
    Ok(all)
}

async fn client(to: SocketAddr, until: Instant) -> Result<Tally, AnyError> {
    let stream = TokioIo::new(TcpStream::connect(to).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let mut tally = Tally::default();
    while Instant::now() < until {
        let start = Instant::now();
        let request = Request::get("/work").header("host", "example").body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let is_done = response.status().is_success();
        response.into_body().collect().await?;
        if is_done {
            tally.done.push(start.elapsed());
        } else {
            tally.refused += 1;
            // A client that behaves: it does not ask again at once.
            tokio::time::sleep(WORK).await;
        }
    }
    Ok(tally)
}
