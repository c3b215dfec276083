//! The memory of connections on which nothing happens.

use std::{io, net::TcpStream, thread, time::Duration};

use super::{
    process::Process,
    proxied::{HEADER_TIMEOUT, MAX, MAX_QUEUE},
    proxies::{Haproxy, KEY, Nginx, Ours, PATH, request},
    role::Role,
    rounds::in_turn,
    stage::Stage,
    wire::ask,
};
use crate::{
    report::{Goal, Question},
    suite::Suite,
};

const MEMORY: &str = "idle: memory for a connection";
const MEMORY_IN_ALL: &str = "idle: memory in all, with the connections";
const MEMORY_BESIDE_NGINX: &str = "idle: memory for a connection, beside nginx";
const CONNECTIONS: u64 = 5_000;
/// So many come and go first.
const FIRST: u64 = 64;

pub(crate) fn run(suite: &mut Suite, stage: &Stage) -> Result<(), String> {
    if !suite.wants_any(&[MEMORY, MEMORY_BESIDE_NGINX, MEMORY_IN_ALL]) {
        return Ok(());
    }
    let upstream = stage.server(Role::Upstream)?;
    let upstream = upstream.port();
    // The upstream's side of the connections is in another process; a few hundred files are for everything else.
    let count =
        CONNECTIONS.min(stage.open_files().saturating_sub(500)) / if suite.is_quick() { 5 } else { 1 };
    let ours =
        Ours { upstream, max: MAX, max_queue: MAX_QUEUE, header_timeout: HEADER_TIMEOUT, is_pinned: true };
    // A process of its own for each round: memory that was there once is not asked for again.
    let [ours, haproxy, nginx] = in_turn::<3, 2>(if suite.is_quick() { 1 } else { 3 }, |index| {
        let proxy = match index {
            0 => stage.ours("flowgate-idle", &ours)?,
            1 => stage.haproxy("haproxy-idle", &Haproxy { upstream, max: MAX, deny: None })?,
            _ => stage.nginx("nginx-idle", &Nginx { upstream, limit: None })?,
        };
        for_each(&proxy, count)
    })?;
    let memory = Question::new(MEMORY, "bytes").against("HAProxy").goal(Goal::at_most(1.0));
    suite.add(memory.beside(ours[0], haproxy[0]));
    suite.add(Question::new(MEMORY_BESIDE_NGINX, "bytes").against("nginx").beside(ours[0], nginx[0]));
    suite.add(Question::new(MEMORY_IN_ALL, "MB").against("HAProxy").beside(ours[1], haproxy[1]));
    suite.remark(format!("idle: {count} connections"));
    Ok(())
}

/// How many bytes each of so many connections costs after one request, and how many megabytes the proxy has then.
fn for_each(proxy: &Process, count: u64) -> Result<[f64; 2], String> {
    let growth = Growth::from_here(proxy)?;
    let connections = open(proxy, count)?;
    let each = growth.for_each(count)?;
    let all = proxy.resident()?;
    drop(connections);
    Ok([each, all / 1_048_576.0])
}

/// What a process's memory grows by.
pub(super) struct Growth<'a> {
    proxy: &'a Process,
    before: f64,
}

impl<'a> Growth<'a> {
    /// Begins after a few connections have come and gone, for what is allocated once.
    pub(super) fn from_here(proxy: &'a Process) -> Result<Self, String> {
        drop(open(proxy, FIRST)?);
        settle();
        Ok(Growth { proxy, before: proxy.resident()? })
    }

    /// By how many bytes for each of so many.
    pub(super) fn for_each(self, count: u64) -> Result<f64, String> {
        settle();
        Ok((self.proxy.resident()? - self.before) / count as f64)
    }
}

/// Long enough for a proxy to find that nothing happens, and to give back what it does not need.
fn settle() {
    thread::sleep(Duration::from_millis(2_500));
}

fn open(proxy: &Process, count: u64) -> Result<Vec<TcpStream>, String> {
    let request = request(PATH, KEY);
    let open = |_| {
        let mut stream = TcpStream::connect(proxy.address())?;
        let answer = ask(&mut stream, &request)?;
        if answer.is_well() { Ok(stream) } else { Err(io::Error::other(format!("status {}", answer.status))) }
    };
    let connections = (0..count).map(open).collect::<io::Result<Vec<_>>>();
    connections.map_err(|error| format!("{count} connections could not be opened: {error}"))
}
