//! Connections that became something else: WebSockets.
//!
//! Owns the bytes both ways after the switch, and the pass, which lives until both sides have closed. It holds nothing of its
//! client, which holds it until the switch: else neither would ever be dropped.

use bytes::Bytes;
use flowgate::Pass;
use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::TcpStream,
};

use super::{
    clock::Span,
    io::ClientIo,
    watch::{Stage, Watch},
};

/// The upstream's side of a connection that became something else.
#[derive(Debug)]
pub(super) struct Tunnel {
    // Fields drop in this order: the slot is never free while the connection is there.
    pub(super) upstream: TcpStream,
    /// What the upstream said after its 101.
    pub(super) early: Bytes,
    /// How long it may stand still in both directions.
    pub(super) stand_still: Span,
    pub(super) _pass: Option<Pass>,
}

impl Tunnel {
    /// Copies both ways until both sides have closed, one fails, or nothing moves for too long.
    ///
    /// Cancel safety: dropped, both connections are closed, and the slot is free then.
    pub(super) async fn run(mut self, mut client: ClientIo, watch: &Watch) {
        watch.begin(Stage::Tunnel, self.stand_still);
        if !self.early.is_empty() && client.write_all(&self.early).await.is_err() {
            return;
        }
        self.early = Bytes::new();
        // However it ends, it has ended for both.
        let _ = copy_bidirectional(&mut client, &mut self.upstream).await;
    }
}
