//! The way between a process and its database, which can be cut, frozen and held up.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// How the way is at the moment.
#[derive(Clone, Copy, Default)]
struct Way {
    /// How often all connections were cut.
    cuts: u32,
    /// Whether the server hears nothing of that.
    is_kept: bool,
    /// Nothing passes, in neither direction, and nobody is told.
    is_frozen: bool,
    /// Where set, no more bytes than these pass to the server on any connection.
    most: Option<usize>,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    ToServer,
    FromServer,
}

#[derive(Clone)]
struct Ends {
    way: Arc<watch::Sender<Way>>,
    /// So many bytes still pass in each direction before all connections are cut.
    left: Arc<[AtomicI64; 2]>,
    /// Whether they had.
    was_cut: Arc<AtomicBool>,
}

pub(super) struct Link {
    pub(super) url: String,
    ends: Ends,
}

impl Link {
    pub(super) async fn to(url: &str) -> Self {
        let port = flowgate_testkit::postgres::Postgres::shared().port();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("its address").port();
        let left = Arc::new([AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)]);
        let way = Arc::new(watch::Sender::new(Way::default()));
        let ends = Ends { way, left, was_cut: Arc::default() };
        let carriers = ends.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(carriers.clone().carry(from_client, to_server, Bound::ToServer));
                tokio::spawn(carriers.clone().carry(from_server, to_client, Bound::FromServer));
            }
        });
        Link { url: url.replace(&format!(":{port}/"), &format!(":{own}/")), ends }
    }

    /// Ends all connections: the server finds out when it next has something to say.
    pub(super) fn cut(&self) {
        self.ends.cut();
    }

    /// Ends all connections for the process, and none for the server: it goes on as if somebody were there.
    pub(super) fn cut_ours(&self) {
        self.ends.way.send_modify(|way| (way.cuts, way.is_kept) = (way.cuts + 1, true));
    }

    pub(super) fn freeze(&self) {
        self.ends.way.send_modify(|way| way.is_frozen = true);
    }

    /// From now on no more bytes than these pass to the server on any connection, if any are told.
    pub(super) fn hold_back(&self, most: Option<usize>) {
        self.ends.way.send_modify(|way| way.most = most);
    }

    /// All connections are cut when so many more bytes have passed; those pass.
    pub(super) fn cut_after(&self, bytes: i64, bound: Bound) {
        self.ends.left[bound as usize].store(bytes, Ordering::SeqCst);
    }

    /// Nothing is cut any more.
    pub(super) fn mend(&self) {
        self.ends.left.iter().for_each(|left| left.store(i64::MAX, Ordering::SeqCst));
    }

    /// Whether so many bytes had passed since this was asked last.
    pub(super) fn was_cut(&self) -> bool {
        self.ends.was_cut.swap(false, Ordering::SeqCst)
    }
}

impl Ends {
    fn cut(&self) {
        self.way.send_modify(|way| way.cuts += 1);
    }

    async fn carry(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bound: Bound) {
        let cuts = self.way.borrow().cuts;
        let (mut cut, mut thaw) = (self.way.subscribe(), self.way.subscribe());
        let carried = async {
            let (mut bytes, mut all) = (vec![0; 1 << 16], 0);
            while let Ok(count @ 1..) = from.read(&mut bytes).await {
                all += count;
                let is_bounded = bound == Bound::ToServer;
                let may_pass = |way: &Way| !is_bounded || way.most.is_none_or(|most| all <= most);
                if thaw.wait_for(|way| !way.is_frozen && may_pass(way)).await.is_err() {
                    return;
                }
                let left = self.left[bound as usize].fetch_sub(count as i64, Ordering::SeqCst);
                let passes = usize::try_from(left).unwrap_or(0).min(count);
                if to.write_all(&bytes[..passes]).await.is_err() {
                    return;
                }
                if passes < count {
                    self.was_cut.store(true, Ordering::SeqCst);
                    return self.cut();
                }
            }
        };
        let is_kept = tokio::select! {
            () = carried => false,
            way = cut.wait_for(|way| way.cuts != cuts) => way.is_ok_and(|way| way.is_kept),
        };
        if is_kept {
            // Each direction has a half of both connections.
            match bound {
                Bound::ToServer => drop(from),
                Bound::FromServer => drop(to),
            }
            std::future::pending::<()>().await;
        }
    }
}
