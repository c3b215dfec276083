//! What fits: it compiles.

use flowgate::route::{Concurrency, Error, Failure, Retry, Route, direct};

fn main() {
    let _ = Route::new("orders")
        .error(|_: Failure| async { Ok::<u32, Error>(503) })
        .from(direct())
        .retry(Retry::new())
        .concurrency(Concurrency::max(5))
        .transform(|order: u32| order)
        .build();
}
