//! Told: a wrapper has no step after it
//! Told: the last wrapper before this wraps nothing
//! Told: move the wrapper before `.from()`, where it covers the whole route

use flowgate::route::{Concurrency, Route, direct};

fn main() {
    let _ = Route::new("orders").from(direct()).transform(|order: u32| order).concurrency(Concurrency::max(5)).build();
}
