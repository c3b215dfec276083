//! A server on loopback, and a client that writes and reads its own bytes, so that it can stop anywhere.

use std::{
    collections::HashMap,
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use flowgate::http::ConcurrencyLimit;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves until the test is over.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    address
}

/// Waits for something to become true. It neither sleeps nor guesses how long that takes.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let so = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, so).await.unwrap_or_else(|_| panic!("never so: {what}"));
}

pub(crate) async fn in_use(limit: &ConcurrencyLimit, wanted: u64) {
    until(&format!("{wanted} in use"), || limit.look().in_use == wanted).await;
}

pub(crate) async fn waiting(limit: &ConcurrencyLimit, wanted: u64) {
    until(&format!("{wanted} waiting"), || limit.look().waiting == wanted).await;
}

/// A handler that answers when the test says so.
#[derive(Clone)]
pub(crate) struct Held(Arc<Semaphore>);

impl Held {
    pub(crate) fn new() -> Self {
        Held(Arc::new(Semaphore::new(0)))
    }

    /// Lets `count` requests end.
    pub(crate) fn release(&self, count: usize) {
        self.0.add_permits(count);
    }

    pub(crate) async fn wait(&self) -> &'static str {
        self.0.acquire().await.unwrap().forget();
        "done"
    }

    /// A router whose `path` answers when the test says so.
    pub(crate) fn at(&self, path: &str) -> Router {
        let held = self.clone();
        Router::new().route(path, get(move || async move { held.wait().await }))
    }
}

/// A body that goes on for as long as the test sends to it.
pub(crate) fn endless() -> (tokio::sync::mpsc::UnboundedSender<&'static str>, Body) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        let chunk = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), receiver))
    });
    (sender, Body::from_stream(stream))
}

/// A connection. Dropping it hangs up.
pub(crate) struct Client(BufReader<TcpStream>);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, Vec<String>>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        Client(BufReader::new(TcpStream::connect(to).await.unwrap()))
    }

    /// From another address of this machine.
    pub(crate) async fn from(source: &str, to: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(source.parse::<IpAddr>().unwrap(), 0)).unwrap();
        Client(BufReader::new(socket.connect(to).await.unwrap()))
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    pub(crate) async fn ask(&mut self, target: &str) {
        self.ask_with(target, "").await;
    }

    /// `target` is a path, or a method and a path; each header line ends with `\r\n`.
    pub(crate) async fn ask_with(&mut self, target: &str, headers: &str) {
        let (method, path) = target.split_once(' ').unwrap_or(("GET", target));
        self.write(format!("{method} {path} HTTP/1.1\r\nhost: t\r\n{headers}\r\n").as_bytes()).await;
    }

    /// The next line of the head.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line));
        read.await.expect("the server answers in time").unwrap();
        line.trim_end().to_owned()
    }

    /// Until the server has sent something.
    pub(crate) async fn arrival(&mut self) {
        self.0.get_ref().peek(&mut [0]).await.unwrap();
    }

    /// Whether the server has sent something already.
    pub(crate) async fn has_arrival(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.arrival() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    /// The head of an answer, with no body yet.
    pub(crate) async fn head(&mut self) -> Answer {
        let first = self.line().await;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut headers: HashMap<String, Vec<String>> = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
        }
        Answer {
            status: status.unwrap_or_else(|| panic!("no status: {first:?}")),
            headers,
            body: String::new(),
        }
    }

    async fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// One chunk of a body without a length; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let length = usize::from_str_radix(&self.line().await, 16).unwrap();
        let mut bytes = self.bytes(length + 2).await;
        bytes.truncate(length);
        (length > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        if let Some(length) = answer.header("content-length") {
            let bytes = self.bytes(length.parse().unwrap()).await;
            answer.body = String::from_utf8(bytes).unwrap();
        } else if answer.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                answer.body.push_str(&chunk);
            }
        }
        answer
    }

    /// Has no more to say, but listens.
    pub(crate) async fn finish(&mut self) {
        self.0.get_mut().shutdown().await.unwrap();
    }

    /// Whether the server has closed the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.0.read_u8());
        read.await.expect("the server closes in time").is_err()
    }
}

/// Asks on a connection of its own.
pub(crate) async fn ask(to: SocketAddr, target: &str) -> Answer {
    ask_with(to, target, "").await
}

pub(crate) async fn ask_with(to: SocketAddr, target: &str, headers: &str) -> Answer {
    let mut client = Client::connect(to).await;
    client.ask_with(target, headers).await;
    client.answer().await
}

/// Asks and leaves the answer for later.
pub(crate) async fn begin(to: SocketAddr, target: &str) -> Client {
    let mut client = Client::connect(to).await;
    client.ask(target).await;
    client
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|values| values.first()).map(String::as_str)
    }

    /// All values of a header, joined as a list.
    pub(crate) fn list(&self, name: &str) -> String {
        self.headers.get(name).map_or_else(String::new, |values| values.join(", "))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

/// A layer with `max` slots, no line, and otherwise what `options` says.
pub(crate) fn limit(
    max: u32,
    options: impl FnOnce(flowgate::http::ConcurrencyLimitBuilder) -> flowgate::http::ConcurrencyLimitBuilder,
) -> ConcurrencyLimit {
    options(ConcurrencyLimit::builder().max_concurrent(max)).build().unwrap()
}

/// Runs a future to its end or gives up on it.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}
