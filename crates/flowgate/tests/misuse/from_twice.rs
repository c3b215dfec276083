//! Told: no method named `from` found for struct `Steps<

use flowgate::route::{Route, direct, values};

fn main() {
    let _ = Route::new::<u32, u32>("orders").from(direct()).from(values([1]));
}
