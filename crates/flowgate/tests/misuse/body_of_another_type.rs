//! Told: expected closure signature `fn(String) -> _`

use flowgate::route::{Route, direct};

fn main() {
    let _ = Route::new("orders")
        .from(direct())
        .transform(|order: u32| order.to_string())
        .transform(|order: u32| order + 1)
        .build();
}
