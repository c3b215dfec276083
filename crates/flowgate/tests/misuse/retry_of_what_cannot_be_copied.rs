//! Told: the trait bound `Order: Clone` is not satisfied

use flowgate::route::{Retry, Route, direct};

struct Order;

fn main() {
    let _ = Route::new("orders").from(direct()).retry(Retry::new()).transform(|order: Order| order).build();
}
