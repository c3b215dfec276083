//! Starts of a rate, spent on the express lane.

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
