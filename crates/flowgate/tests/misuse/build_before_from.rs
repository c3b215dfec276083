//! Told: no method named `build` found for struct `Draft<

use flowgate::route::Route;

fn main() {
    let _ = Route::new::<u32, u32>("orders").build();
}
