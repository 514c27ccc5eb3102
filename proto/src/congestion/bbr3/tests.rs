//! BBRv3 over one link in virtual time: step responses, and what must hold at every step.
//!
//! Every controller here runs inside a [`Checked`], which looks at its model after each event.

use super::*;
use crate::congestion::PacedSender;
use crate::congestion::rate_sample::RateSample;
use crate::congestion::testing::{Flow, Link, SMSS, base, mbit, sample};
use proptest::prelude::*;

mod known_problems;
mod steps;
mod version_2;

/// A controller whose invariants are checked at every event.
#[derive(Debug, Clone)]
struct Checked(Bbr3);

impl Checked {
    fn check(&mut self, event: impl FnOnce(&mut Bbr3)) {
        let before = self.0.clone();
        event(&mut self.0);
        let bbr = &self.0;
        assert!(bbr.cwnd >= 4 * bbr.smss);
        assert!(bbr.pacing_rate > 0);
        assert!(bbr.bandwidth() <= bbr.max_bandwidth.get());
        if matches!(bbr.state, State::Refill | State::Up) {
            assert_eq!((bbr.short_term.bandwidth, bbr.short_term.inflight), (None, None), "{:?}", bbr.state);
        }
        let fell = match (before.inflight_longterm, bbr.inflight_longterm) {
            (Some(before), Some(now)) => now < before,
            (None, Some(_)) => true,
            (Some(_), None) => panic!("what a loss taught is forgotten"),
            (None, None) => false,
        };
        let startup_ended = before.state == State::Startup && bbr.full_pipe.reached;
        assert!(!fell || startup_ended || bbr.cycle.too_high_since(&before.cycle), "{before:?} {bbr:?}");
        if bbr.max_bandwidth.get() < before.max_bandwidth.get() {
            assert!(bbr.max_bandwidth.is_of_later_cycle(&before.max_bandwidth));
        }
    }
}

impl Congestion for Checked {
    fn on_sent(&mut self, sent: &Sent, now: Instant) {
        self.check(|bbr| bbr.on_sent(sent, now));
    }

    fn on_ack(&mut self, acked: &AckBatch, now: Instant) {
        self.check(|bbr| bbr.on_ack(acked, now));
    }

    fn on_lost(&mut self, lost: &LossBatch, now: Instant) {
        self.check(|bbr| bbr.on_lost(lost, now));
    }

    fn heeds_reports(&self) -> bool {
        self.0.heeds_reports()
    }

    fn on_report(&mut self, report: &ReferenceReport, now: Instant) {
        self.check(|bbr| bbr.on_report(report, now));
    }

    fn on_mtu(&mut self, smss: u64) {
        self.check(|bbr| bbr.on_mtu(smss));
    }

    fn control(&self) -> Control {
        self.0.control()
    }

    fn send_phase(&self) -> SendPhase {
        self.0.send_phase()
    }

    fn metrics(&self) -> Metrics {
        self.0.metrics()
    }

    fn clone_box(&self) -> Box<dyn Congestion> {
        Box::new(self.clone())
    }
}

/// One of the variants.
type Make = fn(u64, u64, Instant) -> Bbr3;

const BOTH: [(&str, Make); 2] = [("draft", Bbr3::draft), ("ours", Bbr3::new)];

const EVERY: [(&str, Make); 3] = [("draft", Bbr3::draft), ("ours", Bbr3::new), ("version 2", Bbr3::version_2)];

fn flow(make: Make, link: Link, seed: u64) -> Flow {
    Flow::new(|now| PacedSender::new(Box::new(Checked(make(SMSS, seed, now))), SMSS, now), link, seed)
}

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

fn one_lost(flight: u64, lost: u64, now: Instant) -> LossBatch {
    LossBatch {
        bytes: SMSS,
        in_flight: flight * SMSS,
        delivered: 0,
        lost_since_sent: lost * SMSS,
        tx_in_flight: flight * SMSS,
        lost_in_flight: lost,
        send_time: now,
        app_limited: false,
        persistent: false,
        marked: false,
        reported: false,
    }
}

#[test]
fn some_of_a_small_flight_is_left_to_reckon_with_however_much_noise_there_is() {
    let now = crate::testing::start();
    let mut bbr = Bbr3::new(1_200, 1, now);
    let report = ReferenceReport {
        judged: 10,
        lost: 4,
        newest_sent_at: now,
        queue: Duration::ZERO,
        tolerated: Duration::from_millis(1),
        floor: 0.4,
        trial_wanted: false,
    };
    bbr.on_report(&report, now);
    for datagrams in 0..20 {
        assert!(bbr.judge_flight(datagrams * 1_200, 0, 0, now).0 <= MOST_ALLOWED);
    }
}

#[test]
fn one_loss_of_forty_is_too_high_for_the_draft_and_chance_for_ours() {
    let now = base();
    for (make, lost, too_high) in [(Bbr3::draft as Make, 1, true), (Bbr3::new, 1, false), (Bbr3::new, 2, true)] {
        let mut bbr = make(SMSS, 1, now);
        bbr.cycle.judges = true;
        bbr.on_lost(&one_lost(40, lost, now), now);
        assert_eq!(bbr.inflight_longterm.is_some(), too_high, "{lost} lost");
        assert_eq!(bbr.cycle.judges, !too_high);
    }
}

#[test]
fn a_probe_comes_as_often_as_a_reno_flow_would_lose() {
    let now = base();
    // Bandwidth-delay product in datagrams, and rounds until the probe when the count starts at 0.
    for (datagrams, rounds) in [(30, 30), (200, 63)] {
        let mut bbr = Bbr3::draft(SMSS, 1, now);
        bbr.cwnd = 1_000 * SMSS;
        bbr.min_rtt.update(Some(Duration::from_millis(100)), now);
        let rate = datagrams * SMSS * 10;
        bbr.max_bandwidth.update(&RateSample { delivery_rate: Some(rate), ..sample(now) });
        bbr.state = State::Up;
        bbr.enter_down(now);
        bbr.cycle.rounds_since_up = rounds - 1;
        assert!(!bbr.is_time_to_probe(now), "{datagrams}");
        bbr.cycle.rounds_since_up = rounds;
        assert!(bbr.is_time_to_probe(now), "{datagrams}");
        bbr.cycle.rounds_since_up = 1;
        assert!(!bbr.is_time_to_probe(now + secs(2.0)) && bbr.is_time_to_probe(now + secs(3.0)));
    }
}

#[test]
fn a_loss_that_only_the_report_knows_ends_a_probe_and_is_not_counted_twice() {
    let start = base();
    let ms = Duration::from_millis;
    let mut bbr = Bbr3::new(SMSS, 1, start);
    bbr.full_pipe.found();
    bbr.state = State::Up;
    bbr.cycle.judges = true;
    let mut sender = PacedSender::new(Box::new(Checked(bbr)), SMSS, start);
    let sent_at: Vec<Instant> = (0..100)
        .map(|k| {
            let at = start + ms(10) + Duration::from_micros(100) * k;
            sender.sent(at, SMSS);
            at
        })
        .collect();
    let losses = |range: std::ops::Range<usize>| -> Vec<_> {
        sent_at[range].iter().map(|&sent_at| super::super::rate_sample::HiddenLoss { bytes: SMSS, sent_at }).collect()
    };
    sender.reported(start + ms(30), &losses(91..92), None);
    assert_eq!(sender.metrics().phase, "up", "one is chance");
    sender.lost(start + ms(31), sent_at[91], SMSS, false);
    assert_eq!(sender.metrics().phase, "up", "the library knows of the same one");
    sender.reported(start + ms(32), &losses(92..94), None);
    assert_eq!(sender.metrics().phase, "down");
}

#[test]
fn a_trial_runs_in_cruise_at_three_quarters_and_only_once_for_each_wish() {
    // As long as nothing is confirmed, at a quarter.
    for (floor, rates) in [(0.06, 70.0..76.0), (0.05, 23.0..26.0)] {
        run_a_trial(floor, rates);
    }
}

fn run_a_trial(floor: f64, rates: std::ops::Range<f64>) {
    let mut flow = flow(Bbr3::new, Link::standard(), 3);
    flow.run(secs(2.0));
    let mut report = ReferenceReport {
        judged: 1,
        lost: 0,
        newest_sent_at: base(),
        queue: Duration::ZERO,
        tolerated: Duration::from_millis(1),
        floor,
        trial_wanted: true,
    };
    let (mut on_trial, mut trials, mut slowest) = (false, 0, f64::MAX);
    for _ in 0..40 {
        let now = base() + flow.elapsed();
        flow.sender.reported(now, &[], Some(&report));
        flow.run_observing(Duration::from_millis(5), |flow| {
            let trial = flow.sender.send_phase() == SendPhase::Trial;
            trials += u32::from(trial && !on_trial);
            if trial {
                slowest = slowest.min(flow.sender.control().pacing_rate as f64 * 8e-6);
            }
            on_trial = trial;
        });
    }
    assert_eq!(trials, 1, "no second one before the first was judged");
    assert!(rates.contains(&slowest), "{slowest}");
    report.newest_sent_at = base() + flow.elapsed();
    let now = base() + flow.elapsed();
    flow.sender.reported(now, &[], Some(&report));
    assert!(flow.phases(secs(0.9)).iter().any(|(phase, _)| *phase == "cruise"));
}

#[test]
fn the_window_covers_what_the_far_side_holds() {
    let window = |hold| {
        let mut bbr = Bbr3::new(SMSS, 1, base());
        for round in 1..20u64 {
            let now = base() + Duration::from_millis(20) * round as u32;
            let sample = RateSample { prior_delivered: round * 25_000, ..sample(now) };
            let acked = AckBatch {
                newly_acked: 25_000,
                in_flight: 25_000,
                delivered: round * 25_000,
                sample,
                round_start: true,
                round,
                cwnd_limited: true,
                hold_lag: hold,
            };
            bbr.on_ack(&acked, now);
        }
        bbr.control().cwnd
    };
    assert_eq!(window(Duration::from_millis(4)) - window(Duration::ZERO), 5_000);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut flow = flow(Bbr3::new, Link { loss: 0.03, ..Link::standard() }, seed);
        flow.run(secs(3.0));
        (flow.sent, flow.delivered, flow.lost, flow.sender.control())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_must_always_hold_does_whatever_the_link_does(
        seed in any::<u64>(),
        make in prop::sample::select(EVERY.map(|(_, make)| make).to_vec()),
        changes in prop::collection::vec((0.1f64..100.0, 1u64..200, 5_000u64..500_000, 0.0f64..0.5, 0u8..5), 1..6),
        batch in 1u64..=10,
    ) {
        let mut flow = flow(make, Link::standard(), seed);
        flow.batch = batch;
        for (rate, rtt_ms, queue, loss, what) in changes {
            let policer = (what == 2).then_some(queue);
            flow.link = Link { rate: mbit(rate), rtt: Duration::from_millis(rtt_ms), queue, policer, loss, ..flow.link };
            flow.offered = (what == 0).then(|| mbit(rate / 10.0));
            if what == 1 {
                flow.link.acks_wait_until = flow.elapsed() + secs(0.25);
            }
            flow.run(secs(1.0));
        }
        prop_assert!(flow.sent >= flow.delivered);
    }
}
