//! Told: no method named `transform` found for struct `Draft<

use flowgate::route::Route;

fn main() {
    let _ = Route::new::<u32, u32>("orders").transform(|order: u32| order);
}
