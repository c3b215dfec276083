//! Starts of a rate, spent on the express lane.

use std::time::Duration;

use flowgate::{Gate, Limits};
use flowgate_testkit::FakeClock;

use crate::kit::{aside, model};

#[test]
fn g9_one_start_is_spent_once() {
    // Seen to fail: with `Express::spend` swapping instead of comparing, both start.
    for burst in [None, Some(1)] {
        model(move || {
            let builder = Gate::builder().rate(1, "1m").clock(FakeClock::new());
            let builder = if let Some(burst) = burst { builder.burst(burst) } else { builder };
            let gate = builder.build().unwrap();
            let other = aside(&gate, |gate| gate.check().is_ok());
            let looker = aside(&gate, |gate| gate.look().rate.unwrap().remaining);
            let mine = gate.check().is_ok();
            assert_eq!(u32::from(mine) + u32::from(other.join().unwrap()), 1);
            assert!(looker.join().unwrap() <= 1);
            assert_eq!(gate.look().rate.unwrap().remaining, 0);
        });
    }
}

#[test]
fn g9_a_start_spent_before_a_change_counts_after_it() {
    // Seen to fail: with `Express::fetch_rate` loading instead of swapping, a start is not counted.
    model(|| {
        let gate = Gate::builder().rate(1, "1m").clock(FakeClock::new()).build().unwrap();
        let operator = aside(&gate, |gate| gate.set_limits(Limits::builder().rate(2, "1m").build().unwrap()));
        let other = aside(&gate, |gate| gate.check().is_ok());
        let mine = gate.check().is_ok();
        operator.join().unwrap();
        let starts = u32::from(mine) + u32::from(other.join().unwrap());
        assert!(starts > 0);
        assert_eq!(gate.look().rate.unwrap().remaining, 2 - starts);
    });
}

#[test]
fn g9_one_who_is_late_does_not_begin_the_rate_anew() {
    // Seen to fail: with the time asked for before `Express::spend` reads its word, one who was kept from going on in
    // between takes what was spent meanwhile for that of a clock set back, and the next may start once more.
    for burst in [None, Some(1)] {
        model(move || {
            let clock = FakeClock::new();
            let builder = Gate::builder().rate(1, "1s").clock(clock.clone());
            let builder = if let Some(burst) = burst { builder.burst(burst) } else { builder };
            let gate = builder.build().unwrap();
            let other = aside(&gate, move |gate| {
                clock.advance(Duration::from_secs(10));
                gate.check().is_ok()
            });
            let mine = gate.check().is_ok();
            assert!(other.join().unwrap() || mine);
            assert!(gate.check().is_err(), "one has started just now");
        });
    }
}
