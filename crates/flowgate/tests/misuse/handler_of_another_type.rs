//! Told: Head<u32, u32, &str>, u32,

use flowgate::route::{Error, Failure, Route, direct};

fn main() {
    let _ = Route::new("orders")
        .error(|_: Failure| async { Ok::<&str, Error>("503") })
        .from(direct())
        .transform(|order: u32| order)
        .build();
}
