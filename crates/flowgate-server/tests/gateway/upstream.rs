//! Upstreams: one that a test plays by hand, and one that answers by itself but for those who ask to be held.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use tokio::net::TcpSocket;

use crate::{
    client::{Client, Message},
    program::{DEADLINE, Program},
};

/// What an upstream says that has nothing to say, and will answer no more.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
/// The same of one that goes on.
pub(crate) const OK_AND_ON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An address at which nobody listens, and nobody else can for as long as the socket is there.
pub(crate) fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let address = socket.local_addr().expect("it has an address");
    (socket, address)
}

/// Played by hand: who connects waits until the test takes the connection.
pub(crate) struct Upstream {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Upstream {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        // Nobody waits for ever for one who does not come. The time is the socket's own, and only this type can set it.
        let timed = TcpStream::from(OwnedFd::from(listener.try_clone().expect("a socket can be shared")));
        timed.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero is fine");
        Upstream { listener, address }
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> Client {
        let (stream, _) = self.listener.accept().expect("the gateway connects in time");
        Client::of(stream)
    }

    /// The next connection, and the request on it.
    pub(crate) fn take(&self) -> (Client, Message) {
        let mut connection = self.accept();
        let request = connection.read();
        (connection, request)
    }

    /// Whether nobody waits for a connection to be taken.
    pub(crate) fn is_quiet(&self) -> bool {
        self.listener.set_nonblocking(true).expect("a socket can be told so");
        let waiting = self.listener.accept();
        self.listener.set_nonblocking(false).expect("a socket can be told so");
        matches!(waiting, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Answers by itself; a request with the header `X-Hold` is held until the test lets it go.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    held: mpsc::Receiver<Client>,
}

/// A request that is in flight until the test ends it.
pub(crate) struct InFlight {
    pub(crate) client: Client,
    upstream: Client,
}

impl Service {
    pub(crate) fn new() -> Self {
        let Upstream { listener, address } = Upstream::new();
        let (hold, held) = mpsc::channel();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (connection, hold, noted) = (Client::of(stream), hold.clone(), Arc::clone(&noted));
                thread::spawn(move || serve(connection, &hold, &noted));
            }
        });
        Service { address, seen, held }
    }

    /// The first lines of all requests it has seen.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// The next request that asked to be held.
    pub(crate) fn held(&self) -> Client {
        self.held.recv_timeout(DEADLINE).expect("a request arrives")
    }

    /// A POST that is in flight when this returns.
    pub(crate) fn hold(&self, program: &Program, target: &str, headers: &str) -> InFlight {
        let mut client = program.client();
        client.ask("POST", target, &format!("X-Hold: yes\r\n{headers}"));
        InFlight { client, upstream: self.held() }
    }
}

fn serve(mut connection: Client, hold: &mpsc::Sender<Client>, noted: &Mutex<Vec<String>>) {
    while let Some(request) = connection.try_read() {
        noted.lock().expect("nobody panics with it").push(request.first.clone());
        if request.header("x-hold").is_some() {
            // The test may be over already.
            let _ = hold.send(connection);
            return;
        }
        if !connection.try_send(OK_AND_ON) {
            return;
        }
    }
}

impl InFlight {
    /// Ends it; what its client got.
    pub(crate) fn end(mut self) -> Message {
        self.upstream.send(OK);
        self.client.read()
    }
}
