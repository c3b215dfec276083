//! Limits that change while they hold (law G8), and what a rate and a max owe each other (law G9).

use std::time::Duration;

use flowgate_core::{Decision, Hold, Lane, Limits, LimitsBuilder, Reason, Tick};

const NOW: Tick = Tick::from_nanos(7_000_000_000);

fn build(builder: LimitsBuilder) -> Limits {
    builder.build().expect("valid")
}

fn later(seconds: u64) -> Tick {
    NOW.after(Duration::from_secs(seconds))
}

/// How many get in at `now`, one after another.
fn fill(lane: &mut Lane, limits: &Limits, now: Tick) -> u32 {
    let mut admitted = 0;
    while lane.decide(limits, 1, now) == Decision::Admit {
        lane.admit(limits, 1, now);
        admitted += 1;
    }
    admitted
}

#[test]
fn g8_a_higher_max_lets_in_at_once_and_a_lower_one_as_passes_come_back() {
    // Seen to fail: with `relimit` forgetting what is in use.
    let [low, high] = [2, 5].map(|max| build(Limits::builder().max(max)));
    let mut lane = Lane::default();
    assert_eq!(fill(&mut lane, &low, NOW), 2);
    lane.relimit(&low, &high, NOW);
    assert_eq!(fill(&mut lane, &high, NOW), 3);
    lane.relimit(&high, &low, NOW);
    for left in [4, 3, 2] {
        lane.settle(1);
        assert_eq!((lane.in_use(), lane.hold(&low, 1, NOW)), (left, Some(Hold::Slots)));
    }
    lane.settle(1);
    assert_eq!(lane.hold(&low, 1, NOW), None);
}

#[test]
fn g8_a_lower_queue_bound_turns_away_newcomers_only() {
    // Seen to fail: with the bound checked by `==`.
    let [long, short] = [9, 2].map(|queue| build(Limits::builder().max(1).queue(queue)));
    let mut lane = Lane::default();
    fill(&mut lane, &long, NOW);
    (0..4).for_each(|_| lane.join());
    lane.relimit(&long, &short, NOW);
    assert_eq!(lane.waiting(), 4, "nobody in line is lost");
    assert_eq!(lane.decide(&short, 1, NOW), Decision::Refuse(Reason::QueueFull));
    (0..3).for_each(|_| lane.leave());
    assert_eq!(lane.decide(&short, 1, NOW), Decision::Wait(Hold::Line));
}

#[test]
fn g8_a_pause_holds_everybody_and_loses_nothing() {
    // Seen to fail: with a pause that forgets the rate.
    let limits = build(Limits::builder().max(3).rate(3, "1m"));
    let mut lane = Lane::default();
    lane.admit(&limits, 1, NOW);
    lane.pause();
    assert!(lane.is_paused());
    assert_eq!(lane.hold(&limits, 1, NOW), Some(Hold::Paused));
    lane.settle(1);
    lane.resume();
    assert!(!lane.is_paused());
    assert_eq!(fill(&mut lane, &limits, NOW), 2, "the start before the pause still counts");
}

#[test]
fn g8_a_change_of_rate_keeps_what_was_spent() {
    // Seen to fail: with `relimit` starting the new rate afresh.
    let [low, high] = [2, 5].map(|rate| build(Limits::builder().rate(rate, "1m")));
    let mut lane = Lane::default();
    assert_eq!(fill(&mut lane, &low, NOW), 2);
    lane.relimit(&low, &high, later(10));
    assert_eq!(fill(&mut lane, &high, later(10)), 3, "three more in the same minute");
    lane.relimit(&high, &low, later(20));
    assert_eq!(fill(&mut lane, &low, later(59)), 0, "no second allowance in the same minute");
    assert_eq!(fill(&mut lane, &low, later(61)), 2);
    assert_eq!(fill(&mut lane, &low, later(62)), 0);
    let without = build(Limits::builder().max(100));
    lane.relimit(&low, &without, later(63));
    assert_eq!(lane.rests_at(&without), Tick::ZERO, "no rate, nothing to remember");
}

#[test]
fn g9_rate_and_max_hold_independently() {
    // Seen to fail: with the rate looked at only where there is no max; with `settle` giving starts back.
    let limits = build(Limits::builder().max(2).rate(3, "1m"));
    let mut lane = Lane::default();
    assert_eq!(fill(&mut lane, &limits, NOW), 2);
    assert_eq!(lane.hold(&limits, 1, NOW), Some(Hold::Slots));
    lane.settle(1);
    assert_eq!(fill(&mut lane, &limits, NOW), 1);
    lane.settle(2);
    assert!(
        matches!(lane.hold(&limits, 1, NOW), Some(Hold::Rate { .. })),
        "slots are free, the rate is spent"
    );
    assert_eq!(fill(&mut lane, &limits, later(61)), 2, "the rate is back, the slots bound");
}

#[test]
fn g9_waiting_for_the_rate_holds_no_slot_and_waiting_for_a_slot_spends_no_rate() {
    // Seen to fail: with `join` taking a slot; with `join` spending a start.
    let limits = build(Limits::builder().max(2).rate(3, "1m"));
    let mut lane = Lane::default();
    fill(&mut lane, &limits, NOW);
    let before = lane.rate();
    (0..5).for_each(|_| lane.join());
    assert_eq!((lane.in_use(), lane.rate()), (2, before), "five wait for a slot");
    lane.settle(2);
    lane.leave();
    lane.admit(&limits, 1, NOW);
    lane.settle(1);
    let Some(Hold::Rate { until }) = lane.hold(&limits, 1, NOW) else { panic!("the rate is spent") };
    assert_eq!((lane.in_use(), lane.waiting()), (0, 4), "four wait for the rate");
    assert_eq!(lane.hold(&limits, 2, until), None, "and all slots are free for it");
    assert_eq!(lane.hold(&limits, 1, Tick::from_nanos(until.as_nanos() - 1)), Some(Hold::Rate { until }));
}

#[test]
fn g9_a_start_that_never_began_is_given_back() {
    // Seen to fail: with `refund` doing nothing.
    for builder in [Limits::builder().rate(2, "1m"), Limits::builder().rate(2, "1m").burst(2)] {
        let limits = build(builder.max(5));
        let mut lane = Lane::default();
        fill(&mut lane, &limits, NOW);
        let spent = lane.rate();
        assert_eq!(fill(&mut lane, &limits, NOW), 0);
        lane.settle(1);
        lane.refund(&limits, spent, NOW);
        assert_eq!(fill(&mut lane, &limits, NOW), 1, "{limits}");
    }
}

#[test]
fn g9_a_lane_is_built_from_counts_kept_elsewhere() {
    // Seen to fail: with `with_counts` dropping the slots, and the rate.
    let limits = build(Limits::builder().max(3).rate(4, "1m"));
    let mut lane = Lane::default();
    lane.admit(&limits, 2, NOW);
    let copy = Lane::with_counts(lane.in_use(), lane.rate());
    assert_eq!(copy, lane);
    assert_eq!(copy.rests_at(&limits), lane.rests_at(&limits));
}
