//! Vectors of the delivery rate, and what the sampler does with what the library cannot tell it.

use super::*;
use crate::congestion::testing::base;
use proptest::prelude::*;

const CWND: u64 = 1_000_000;
const SMSS: u64 = 1_200;

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// Sends one packet of 1,000 bytes at each of the times, which are also its times of leaving.
fn send(sampler: &mut Sampler, times: impl IntoIterator<Item = Instant>) {
    for at in times {
        sampler.on_sent(at, at, 1_000, CWND, SMSS);
    }
}

#[test]
fn the_slower_of_sending_and_acknowledging_gives_the_rate() {
    let start = base();
    for (spacing, interval, rate) in [(2.0, 38.0, 263_158), (0.1, 20.9, 478_469)] {
        let mut sampler = Sampler::new(start);
        send(&mut sampler, (0..10).map(|k| start + ms(f64::from(k))));
        for k in 0..10u32 {
            sampler.on_ack(start + ms(f64::from(k)), 1_000, false);
            let at = start + ms(20.0 + f64::from(k) * spacing);
            let batch = sampler.end_acks(at, u64::from(9 - k) * 1_000, CWND, SMSS).unwrap();
            assert_eq!(batch.sample.delivered, u64::from(k + 1) * 1_000);
            assert_eq!(batch.sample.rtt, Some(at - (start + ms(f64::from(k)))));
            if k == 9 {
                assert_eq!(batch.sample.delivery_rate, Some(rate), "interval {interval} ms");
            }
        }
    }
}

#[test]
fn one_frame_for_many_packets_is_measured_over_both_intervals() {
    let start = base();
    let mut sampler = Sampler::new(start);
    send(&mut sampler, [start + ms(60.0)]);
    // Something older keeps the connection busy, so that the first packet's acknowledgement starts no new flight.
    send(&mut sampler, [start + ms(61.0)]);
    sampler.on_ack(start + ms(60.0), 1_000, false);
    sampler.end_acks(start + ms(80.0), 1_000, CWND, SMSS);
    send(&mut sampler, (80..100).map(|at| start + ms(f64::from(at))));
    for at in 80..100 {
        sampler.on_ack(start + ms(f64::from(at)), 1_000, false);
    }
    let batch = sampler.end_acks(start + ms(120.0), 0, CWND, SMSS).unwrap();
    assert_eq!(batch.newly_acked, 20_000);
    assert_eq!(batch.sample.delivered, 20_000);
    assert_eq!(batch.sample.delivery_rate, Some(500_000));
}

#[test]
fn transmits_that_share_their_time_are_acknowledged_in_the_order_of_sending() {
    let start = base();
    let mut sampler = Sampler::new(start);
    for gate in [0.0, 5.0, 10.0] {
        sampler.on_sent(start, start + ms(gate), 2_000, CWND, SMSS);
    }
    for (acked, rtt) in [(1_000, 30.0), (1_000, 30.0), (1_000, 25.0), (2_000, 20.0)] {
        sampler.on_ack(start, acked, false);
        let batch = sampler.end_acks(start + ms(30.0), 4_000, CWND, SMSS).unwrap();
        assert_eq!(batch.sample.rtt, Some(ms(rtt)));
    }
    assert_eq!(sampler.unmatched(), 0);
}

#[test]
fn a_packet_without_a_record_is_sampled_by_the_newest_older_one_and_counted() {
    let start = base();
    let mut sampler = Sampler::new(start);
    send(&mut sampler, [start, start + ms(10.0)]);
    sampler.on_ack(start + ms(5.0), 1_400, false);
    let batch = sampler.end_acks(start + ms(40.0), 2_000, CWND, SMSS).unwrap();
    assert_eq!(batch.sample.rtt, Some(ms(40.0)));
    assert_eq!(batch.delivered, 1_400);
    assert_eq!(sampler.unmatched(), 1);
}

#[test]
fn an_acknowledgement_from_before_its_sending_gives_no_round_trip() {
    let start = base();
    let mut sampler = Sampler::new(start);
    send(&mut sampler, [start + ms(2.0)]);
    sampler.on_ack(start + ms(2.0), 1_000, false);
    let batch = sampler.end_acks(start, 0, CWND, SMSS).unwrap();
    assert_eq!(batch.sample.rtt, None);
    assert_eq!(batch.sample.delivery_rate, None);
}

#[test]
fn a_sample_is_app_limited_until_what_was_in_flight_is_delivered() {
    let start = base();
    let mut sampler = Sampler::new(start);
    let mut now = start;
    let mut round = |sampler: &mut Sampler, idle: bool| {
        now += ms(1.0);
        send(sampler, [now]);
        sampler.on_ack(now, 1_000, idle);
        sampler.end_acks(now + ms(0.5), 0, CWND, SMSS).unwrap().sample.app_limited
    };
    assert!(!round(&mut sampler, true));
    assert!(round(&mut sampler, false));
    assert!(!round(&mut sampler, false));
}

#[test]
fn a_round_ends_with_the_first_packet_sent_after_the_last_round_was_delivered() {
    let start = base();
    let mut sampler = Sampler::new(start);
    let times: Vec<_> = (0..6).map(|k| start + ms(f64::from(k))).collect();
    send(&mut sampler, times[..4].iter().copied());
    let ack = |sampler: &mut Sampler, k: usize| {
        sampler.on_ack(times[k], 1_000, false);
        sampler.end_acks(start + ms(20.0 + k as f64), 1_000, CWND, SMSS).unwrap().round_start
    };
    assert!(ack(&mut sampler, 0));
    send(&mut sampler, times[4..].iter().copied());
    assert_eq!([1, 2, 3, 4, 5].map(|k| ack(&mut sampler, k)), [false, false, false, true, false]);
}

#[test]
fn losses_are_taken_from_the_newest_records_and_counted_since_their_sending() {
    let start = base();
    let mut sampler = Sampler::new(start);
    send(&mut sampler, (0..4).map(|k| start + ms(f64::from(k))));
    let batch = sampler.on_lost(start + ms(9.0), start + ms(2.0), 2_000, false, SMSS);
    assert_eq!((batch.bytes, batch.in_flight, batch.lost_since_sent, batch.tx_in_flight), (2_000, 2_000, 2_000, 3_000));
    // Packets 1 and 2 are settled: an acknowledgement of either finds no bytes left.
    assert_eq!(sampler.records.iter().map(|record| record.lost).collect::<Vec<_>>(), [0, 1_000, 1_000, 0]);
    let mark = sampler.on_lost(start + ms(9.0), start + ms(3.0), 0, false, SMSS);
    assert!(mark.marked);
    assert_eq!((mark.bytes, mark.in_flight), (SMSS, 2_000));
}

proptest! {
    #[test]
    fn records_stay_bounded_and_nothing_overflows_whatever_comes(
        steps in prop::collection::vec((0u8..4, 0u64..20_000, 1u64..13_000), 1..2_000),
    ) {
        let start = base();
        let mut now = start;
        let mut sampler = Sampler::new(start);
        for (what, micros, bytes) in steps {
            now += Duration::from_micros(micros / 10);
            let earlier = now.checked_sub(Duration::from_micros(micros)).unwrap_or(start);
            match what {
                0 => sampler.on_sent(now, now, bytes, CWND, SMSS),
                1 => sampler.on_ack(earlier, bytes, bytes % 2 == 0),
                2 => { sampler.end_acks(now, bytes * 10, CWND, SMSS); }
                _ => { sampler.on_lost(now, earlier, bytes / 2, false, SMSS); }
            }
            prop_assert!(sampler.records.len() <= MOST);
            prop_assert!(sampler.records.iter().all(|record| record.acked + record.lost <= record.bytes));
        }
    }

    #[test]
    fn a_side_that_only_acknowledges_keeps_few_records(count in 100u32..5_000) {
        let start = base();
        let mut sampler = Sampler::new(start);
        for k in 0..count {
            let at = start + Duration::from_micros(u64::from(k) * 100);
            sampler.on_sent(at, at, 40, CWND, SMSS);
        }
        prop_assert!(sampler.records.len() <= KEEP + 1);
        prop_assert_eq!(sampler.in_flight(), 0);
    }
}

#[test]
fn a_sample_that_spans_an_outage_tells_nothing_of_the_rate() {
    let start = base();
    let mut sampler = Sampler::new(start);
    send(&mut sampler, (0..4).map(|k| start + ms(f64::from(k))));
    let acked = |sampler: &mut Sampler, sent: f64, at: f64, in_flight: u64| {
        sampler.on_ack(start + ms(sent), 1_000, false);
        sampler.end_acks(start + ms(at), in_flight, CWND, SMSS).unwrap().sample.app_limited
    };
    assert!(!acked(&mut sampler, 0.0, 20.0, 3_000));
    assert!(acked(&mut sampler, 1.0, 5_000.0, 2_000));
    send(&mut sampler, [start + ms(5_001.0)]);
    assert!(acked(&mut sampler, 2.0, 5_002.0, 2_000), "it was on its way all the while");
    assert!(!acked(&mut sampler, 5_001.0, 5_021.0, 1_000));
}
