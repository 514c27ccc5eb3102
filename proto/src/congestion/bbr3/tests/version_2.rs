//! Where version 2 differs from version 3. What it has in common is tried with the variants of version 3.

use super::*;
use crate::congestion::rate_sample::AckBatch;

/// A controller that takes 10 Mbit/s and 20 ms for what its path has, 25 kB in flight, and has filled the pipe.
fn steady(make: Make) -> Bbr3 {
    let now = base();
    let mut bbr = make(SMSS, 1, now);
    bbr.full_pipe.found();
    bbr.min_rtt.update(Some(Duration::from_millis(20)), now);
    bbr.max_bandwidth.update(&sample(now));
    bbr.pacing_rate = 1_250_000;
    bbr.cwnd = 50_000;
    bbr
}

fn acked(in_flight: u64, prior_delivered: u64, now: Instant) -> AckBatch {
    AckBatch {
        newly_acked: SMSS,
        in_flight,
        delivered: 1_000_000,
        sample: RateSample { prior_delivered, ..sample(now) },
        round_start: false,
        round: 1,
        cwnd_limited: true,
        hold_lag: Duration::ZERO,
    }
}

#[test]
fn down_paces_at_three_quarters_so_that_up_and_down_make_one() {
    for (make, gain) in [(Bbr3::version_2 as Make, 0.75), (Bbr3::draft, 0.90)] {
        let mut bbr = steady(make);
        bbr.state = State::Down;
        bbr.update_pacing_rate();
        assert_eq!(bbr.pacing_rate, (1_250_000.0 * gain * 0.99) as u64);
    }
}

#[test]
fn up_ends_after_a_round_trip_with_more_than_one_and_a_quarter_products_in_flight() {
    let start = base();
    let mut bbr = steady(Bbr3::version_2);
    bbr.state = State::Refill;
    bbr.rounds.start = true;
    bbr.update_cycle(&acked(25_000, 0, start), start);
    assert_eq!(bbr.state, State::Up);
    bbr.rounds.start = false;
    // 1.25 x 25 kB and two datagrams.
    for (after_ms, in_flight, state) in [(20, 50_000, State::Up), (21, 33_650, State::Up), (22, 33_651, State::Down)] {
        let now = start + Duration::from_millis(after_ms);
        bbr.update_cycle(&acked(in_flight, 0, now), now);
        assert_eq!(bbr.state, state, "{after_ms} ms, {in_flight} in flight");
    }
}

#[test]
fn down_ends_after_a_round_trip_though_a_queue_is_left() {
    let start = base();
    for (make, state) in [(Bbr3::version_2 as Make, State::Cruise), (Bbr3::draft, State::Down)] {
        let mut bbr = steady(make);
        bbr.state = State::Up;
        bbr.enter_down(start);
        for (after_ms, state) in [(20, State::Down), (21, state)] {
            let now = start + Duration::from_millis(after_ms);
            bbr.update_cycle(&acked(30_000, 0, now), now);
            assert_eq!(bbr.state, state, "{after_ms} ms");
        }
    }
}

#[test]
fn three_separate_losses_in_a_round_end_startup_at_one_bandwidth_delay_product() {
    for (losses, ends) in [(2, false), (3, true)] {
        let now = base() + Duration::from_millis(20);
        let mut bbr = steady(Bbr3::version_2);
        bbr.full_pipe = FullPipe::default();
        bbr.cwnd = 100_000;
        for _ in 0..losses {
            bbr.on_lost(&LossBatch { bytes: 2 * SMSS, ..one_lost(40, 1, now) }, now);
        }
        bbr.latest.round_start = true;
        bbr.adapt_short_term(&acked(25_000, 1_000, now), now);
        assert_eq!(bbr.full_pipe.reached, ends, "{losses}");
        assert_eq!(bbr.inflight_longterm, ends.then_some(25_000), "{losses}");
    }
}

#[test]
fn a_recovery_begins_with_a_round_of_a_byte_out_for_a_byte_that_arrived() {
    let now = base() + Duration::from_millis(20);
    let mut bbr = steady(Bbr3::version_2);
    bbr.state = State::Refill;
    bbr.on_lost(&LossBatch { delivered: 1_000_000, ..one_lost(20, 1, now) }, now);
    assert_eq!(bbr.cwnd, 21 * SMSS);
    bbr.update_cwnd(&acked(18 * SMSS, 999_999, now));
    assert_eq!(bbr.cwnd, 21 * SMSS, "no growth, and no less");
    bbr.update_cwnd(&acked(21 * SMSS, 999_999, now));
    assert_eq!(bbr.cwnd, 22 * SMSS, "what is in flight and what arrived");
    bbr.update_cwnd(&acked(21 * SMSS, 1_000_000, now));
    assert_eq!(bbr.cwnd, 23 * SMSS, "the round is over");
    bbr.on_lost(&LossBatch { bytes: 2 * SMSS, delivered: 1_000_000, ..one_lost(20, 1, now) }, now);
    assert_eq!(bbr.cwnd, 21 * SMSS, "more is lost");
    assert!(bbr.prior_cwnd >= 50_000);
}

#[test]
fn a_burst_is_one_datagram_below_1_2_mbit_per_second() {
    for (make, pacing_rate, burst) in
        [(Bbr3::version_2 as Make, 149_999, 1), (Bbr3::version_2, 150_000, 2), (Bbr3::draft, 149_999, 2)]
    {
        let bbr = Bbr3 { pacing_rate, ..make(SMSS, 1, base()) };
        assert_eq!(bbr.send_quantum(), burst * SMSS);
    }
}
