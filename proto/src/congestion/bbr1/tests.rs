//! BBRv1 over one link in virtual time.

use super::*;
use crate::congestion::PacedSender;
use crate::congestion::testing::{Flow, Link, SMSS, mbit};
use proptest::prelude::*;

mod cws;

fn flow(link: Link, seed: u64) -> Flow {
    Flow::new(|now| PacedSender::new(Box::new(Bbr1::new(SMSS, seed, now)), SMSS, now), link, seed)
}

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

#[test]
fn it_walks_from_startup_through_drain_to_probing_the_bandwidth() {
    let mut flow = flow(Link::standard(), 1);
    let seen = flow.phases(secs(2.0));
    assert_eq!(seen.iter().map(|&(phase, _)| phase).collect::<Vec<_>>(), ["startup", "drain", "probe_bw"]);
    // Twelve rounds of at most twice the bare round trip.
    assert!(seen[1].1 < secs(0.24), "{seen:?}");
    let bandwidth = flow.sender.metrics().bandwidth.unwrap();
    assert!(bandwidth.abs_diff(mbit(100.0)) * 50 <= mbit(100.0), "{bandwidth}");
}

#[test]
fn a_link_of_its_own_is_used_to_ninety_five_percent_without_loss() {
    for seed in 0..4 {
        let mut flow = flow(Link::standard(), seed);
        flow.run(secs(2.0));
        let lost = flow.lost;
        let rate = flow.run(secs(10.0));
        assert!(rate >= 95.0, "seed {seed}: {rate} Mbit/s");
        assert_eq!(flow.lost, lost, "seed {seed}");
    }
}

#[test]
fn fifteen_percent_of_loss_costs_little_more_than_what_is_lost() {
    for seed in 0..4 {
        let mut flow = flow(Link { loss: 0.15, ..Link::standard() }, seed);
        flow.run(secs(2.0));
        let rate = flow.run(secs(10.0));
        assert!(rate >= 0.8 * 85.0, "seed {seed}: {rate} Mbit/s");
    }
}

#[test]
fn batches_and_late_timers_cost_next_to_nothing() {
    for (batch, late_micros) in [(10, 0), (1, 1_000), (10, 1_000)] {
        for (loss, least) in [(0.0, 95.0), (0.15, 0.8 * 85.0)] {
            let mut flow = flow(Link { loss, ..Link::standard() }, 9);
            flow.batch = batch;
            flow.timer_late = Duration::from_micros(late_micros);
            flow.run(secs(2.0));
            let rate = flow.run(secs(10.0));
            assert!(rate >= least, "batches of {batch}, {late_micros} us late, loss {loss}: {rate} Mbit/s");
        }
    }
}

#[test]
fn sparse_acknowledgements_on_a_short_round_trip_do_not_wear_the_bandwidth_down() {
    let rtt = Duration::from_micros(300);
    let every = Duration::from_millis(2);
    let mut flow = flow(Link { rate: mbit(200.0), rtt, acks_come_every: every, ..Link::standard() }, 10);
    flow.batch = 10;
    flow.run(secs(1.0));
    let plateau = flow.sender.metrics().bandwidth.unwrap();
    flow.run_observing(secs(20.0), |flow| {
        let bandwidth = flow.sender.metrics().bandwidth.unwrap();
        assert!(bandwidth * 5 >= plateau * 4, "{bandwidth} of {plateau} at {:?}", flow.elapsed());
    });
    assert!(plateau >= mbit(160.0), "{plateau}");
}

#[test]
fn one_percent_of_loss_is_hardly_felt() {
    for seed in 0..4 {
        let mut flow = flow(Link { loss: 0.01, ..Link::standard() }, seed);
        flow.run(secs(2.0));
        let rate = flow.run(secs(10.0));
        assert!(rate >= 93.0, "seed {seed}: {rate} Mbit/s");
    }
}

#[test]
fn the_bare_round_trip_is_looked_for_every_ten_seconds_and_for_a_fifth_of_one() {
    let mut flow = flow(Link { rtt: Duration::from_millis(20), ..Link::standard() }, 3);
    let mut seen = Vec::new();
    for _ in 0..45 {
        // The route grows longer all the time, so that the old round trip is never seen again by itself.
        flow.link.rtt += Duration::from_micros(50);
        seen.extend(flow.phases(secs(1.0)));
    }
    seen.dedup_by_key(|&mut (phase, _)| phase);
    let probes: Vec<_> = seen.iter().zip(&seen[1..]).filter(|((phase, _), _)| *phase == "probe_rtt").collect();
    assert!((3..=4).contains(&probes.len()), "{seen:?}");
    for ((_, from), (next, until)) in &probes {
        assert_eq!(*next, "probe_bw");
        let length = *until - *from;
        assert!(length >= PROBE_RTT_DURATION && length < secs(0.3), "{length:?}");
    }
    for pair in probes.windows(2) {
        let apart = pair[1].0.1 - pair[0].0.1;
        assert!(apart >= secs(10.0) && apart < secs(11.0), "{apart:?}");
    }
}

#[test]
fn what_is_known_survives_an_application_that_sends_little() {
    let mut flow = flow(Link { rate: mbit(50.0), ..Link::standard() }, 4);
    flow.run(secs(3.0));
    flow.offered = Some(mbit(1.0));
    flow.run(secs(120.0));
    let bandwidth = flow.sender.metrics().bandwidth.unwrap();
    assert!(bandwidth >= mbit(45.0), "{bandwidth}");
    flow.offered = None;
    flow.run(secs(0.5));
    let rate = flow.run(secs(2.5));
    assert!(rate >= 40.0, "{rate} Mbit/s");
}

#[test]
fn ten_times_the_bandwidth_is_found_and_a_tenth_of_it_respected() {
    let wide = Link { queue: 125_000, ..Link::standard() };
    let mut flow = flow(Link { rate: mbit(10.0), ..wide }, 5);
    flow.run(secs(5.0));
    flow.link.rate = wide.rate;
    flow.run(secs(5.0));
    let rate = flow.run(secs(2.0));
    assert!(rate >= 90.0, "up: {rate} Mbit/s");
    flow.link.rate = mbit(10.0);
    flow.run(secs(3.0));
    let (sent, rate) = (flow.sent, flow.run(secs(4.0)));
    assert!(rate >= 9.0, "down: {rate} Mbit/s");
    let sending = (flow.sent - sent) as f64 * 8e-6 / 4.0;
    assert!(sending <= 12.0, "down: sends {sending} Mbit/s");
}

#[test]
fn the_full_rate_is_back_soon_after_the_route_grew_longer() {
    let mut flow = flow(Link { rtt: Duration::from_millis(20), queue: 750_000, ..Link::standard() }, 6);
    flow.run(secs(5.0));
    flow.link.rtt = Duration::from_millis(60);
    flow.run(secs(15.0));
    let rate = flow.run(secs(5.0));
    assert!(rate >= 90.0, "{rate} Mbit/s");
}

#[test]
fn a_network_that_falls_silent_now_and_then_does_not_wear_the_model_out() {
    let mut flow = flow(Link { rtt: Duration::from_millis(20), queue: 500_000, ..Link::standard() }, 7);
    flow.run(secs(2.0));
    for _ in 0..10 {
        flow.link.acks_wait_until = flow.elapsed() + secs(0.2);
        flow.run(secs(1.0));
    }
    flow.run(secs(0.2));
    let rate = flow.run(secs(2.0));
    assert!(rate >= 80.0, "{rate} Mbit/s");
    let bandwidth = flow.sender.metrics().bandwidth.unwrap();
    assert!(bandwidth <= mbit(110.0), "{bandwidth}");
}

#[test]
fn a_link_slower_than_a_packet_per_round_trip_is_neither_starved_nor_flooded() {
    let link = Link { rate: mbit(0.064), rtt: Duration::from_millis(50), queue: 30_000, ..Link::standard() };
    let mut flow = flow(link, 8);
    flow.run(secs(20.0));
    let lost = flow.lost;
    let rate = flow.run(secs(60.0));
    assert!(rate >= 0.95 * 0.064, "{rate} Mbit/s");
    assert_eq!(flow.lost, lost);
    // Four datagrams are the least in flight, and their round trip the least that is seen.
    assert!(flow.sender.control().cwnd <= 12 * SMSS, "{:?}", flow.sender.control());
}

#[test]
fn a_hold_at_the_far_side_widens_the_window_by_what_it_holds() {
    let now = crate::congestion::testing::base();
    let batch = |delivered, hold_ms| AckBatch {
        newly_acked: 100_000,
        in_flight: 100_000,
        delivered,
        sample: super::super::rate_sample::RateSample {
            delivery_rate: Some(10_000_000),
            delivered: 100_000,
            prior_delivered: delivered,
            tx_in_flight: 100_000,
            rtt: Some(Duration::from_millis(10)),
            ..crate::congestion::testing::sample(now)
        },
        round_start: true,
        round: delivered / 100_000,
        cwnd_limited: true,
        hold_lag: Duration::from_millis(hold_ms),
    };
    let window = |hold_ms| {
        let mut bbr = Bbr1::new(SMSS, 1, now);
        for round in 1..20 {
            bbr.on_ack(&batch(round * 100_000, hold_ms), now);
        }
        bbr.control().cwnd
    };
    assert_eq!(window(4) - window(0), 40_000);
}

#[test]
fn persistent_congestion_leaves_the_least_window_and_a_recovery_ends_with_the_old_one() {
    let now = crate::congestion::testing::base();
    let lost = |persistent| LossBatch {
        bytes: SMSS,
        in_flight: 5 * SMSS,
        delivered: 0,
        lost_since_sent: SMSS,
        tx_in_flight: 10 * SMSS,
        lost_in_flight: 1,
        send_time: now,
        app_limited: false,
        persistent,
        marked: false,
        reported: false,
    };
    let mut bbr = Bbr1::new(SMSS, 1, now);
    let before = bbr.control().cwnd;
    bbr.on_lost(&lost(false), now);
    assert_eq!(bbr.control().cwnd, 6 * SMSS);
    bbr.on_lost(&lost(true), now);
    assert_eq!(bbr.control().cwnd, 4 * SMSS);
    assert!(bbr.prior_cwnd >= before);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut flow = flow(Link { loss: 0.03, ..Link::standard() }, seed);
        flow.run(secs(3.0));
        (flow.sent, flow.delivered, flow.lost, flow.sender.control())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The checks are in the flow's steps: window, rate and quantum in bounds, release times never decreasing.
    #[test]
    fn what_must_always_hold_does_whatever_the_link_does(
        seed in any::<u64>(),
        make in prop::sample::select(vec![Bbr1::new as fn(u64, u64, Instant) -> Bbr1, Bbr1::cws]),
        changes in prop::collection::vec((0.1f64..100.0, 1u64..200, 5_000u64..500_000, 0.0f64..0.5, 0u8..4), 1..6),
        batch in 1u64..=10,
    ) {
        let sender = |now| PacedSender::new(Box::new(make(SMSS, seed, now)), SMSS, now);
        let mut flow = Flow::new(sender, Link::standard(), seed);
        flow.batch = batch;
        for (rate, rtt_ms, queue, loss, what) in changes {
            flow.link = Link { rate: mbit(rate), rtt: Duration::from_millis(rtt_ms), queue, loss, ..flow.link };
            flow.offered = (what == 0).then(|| mbit(rate / 10.0));
            if what == 1 {
                flow.link.acks_wait_until = flow.elapsed() + secs(0.25);
            }
            flow.run(secs(1.0));
        }
        prop_assert!(flow.sent >= flow.delivered);
    }
}
