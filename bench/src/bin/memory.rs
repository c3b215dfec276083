//! How much memory keys cost, counted byte by byte: the memory cases of `cargo xtask bench gates`.
//!
//! Run by `flowgate-bench`, which reads its lines: a name, a space, a number of bytes.

#![allow(clippy::print_stdout, reason = "its lines are read by `flowgate-bench`")]

use std::{hint::black_box, sync::Arc};

use dashmap::DashMap;
use flowgate::{Gate, KeyedGate};
use flowgate_testkit::{Allocator, Memory};
use tokio::sync::Semaphore;

#[global_allocator]
static ALLOCATOR: Allocator = Memory::COUNTED;

const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];

fn main() {
    kept("kept", one_by_one);
    kept("kept-at-once", all_at_once);
    for size in SIZES {
        println!("lane-{size} {:.1}", live_lane(size));
        println!("peer-{size} {:.1}", map_entry(size));
    }
}

/// What one gate keeps, with all that belongs to it, after many keys and after many more came and went.
fn kept(name: &str, visit: fn(&KeyedGate, u32)) {
    let before = Memory::now().bytes;
    let gate = gate();
    // Told at the end: the first line ever printed allocates.
    let bytes = [SIZES[0], SIZES[2]].map(|size| {
        visit(&gate, size);
        Memory::now().bytes - before
    });
    println!("{name}-{} {}\n{name}-{} {}", SIZES[0], bytes[0], SIZES[2], bytes[1]);
    // Its desks wait in a pool for the next gate; this one has to bring its own, to be counted with it.
    std::mem::forget(gate);
}

fn one_by_one(gate: &KeyedGate, count: u32) {
    for number in 0..count {
        let pass = gate.try_enter_key(&key(number)).expect("there is a slot");
        drop(black_box(pass));
    }
}

fn all_at_once(gate: &KeyedGate, count: u32) {
    let passes: Vec<_> = (0..count)
        .map(|number| gate.try_enter_key(&key(number)).expect("there is room for the lane"))
        .collect();
    drop(black_box(passes));
}

/// Bytes for each lane with a pass out, beyond an empty gate; the text of the key included, for it is short.
fn live_lane(count: u32) -> f64 {
    let gate = gate();
    let mut passes = Vec::with_capacity(count as usize);
    let before = Memory::now().bytes;
    passes.extend(
        (0..count).map(|number| gate.try_enter_key(&key(number)).expect("there is room for the lane")),
    );
    let bytes = Memory::now().bytes - before;
    drop(black_box(passes));
    bytes as f64 / f64::from(count)
}

/// Bytes for each key in a map of semaphores, whether anything is in flight or not.
fn map_entry(count: u32) -> f64 {
    let before = Memory::now().bytes;
    let semaphores: DashMap<String, Arc<Semaphore>, ahash::RandomState> = DashMap::default();
    for number in 0..count {
        semaphores.insert(key(number), Arc::new(Semaphore::new(8)));
    }
    let bytes = Memory::now().bytes - before;
    drop(black_box(semaphores));
    bytes as f64 / f64::from(count)
}

fn key(number: u32) -> String {
    format!("tenant-{number}")
}

fn gate() -> KeyedGate {
    Gate::builder().max(8).keyed().max_keys(SIZES[2]).build().expect("the options are right")
}
