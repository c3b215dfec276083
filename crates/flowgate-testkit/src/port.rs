//! A port of loopback that is free, and stays so while a server is down for a moment.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below what the kernel gives to whoever connects, so that no client takes the port between a crash and the restart.
const FIRST: u32 = 15_000;
const COUNT: u32 = 15_000;

/// A port that nobody listens on. Two of one process never get the same.
pub fn free_port() -> io::Result<u16> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // Processes that start together have numbers that are near: far apart here.
    let start = process::id().wrapping_mul(97);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("the range ends below 65,536");
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}
