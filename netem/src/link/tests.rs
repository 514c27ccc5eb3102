//! The link's behaviour, stage by stage, in virtual time.

use super::*;
use crate::delay::{Jitter, Reorder};
use crate::outage::{Outages, Window};

/// 1,000 bytes on the wire: 0.8 ms at 10 Mbit/s.
const PAYLOAD: usize = 972;

#[test]
fn a_perfect_link_delivers_at_once_and_in_order() {
    let mut bed = Bed::new(|_| {});
    bed.offer_burst(3);
    assert_eq!(bed.link.poll_timeout(), Some(bed.start));
    assert_eq!(bed.drain(), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(bed.link.poll_timeout(), None);
}

#[test]
fn a_packet_takes_its_time_at_the_rate_and_then_the_delay() {
    let mut bed = Bed::new(|config| {
        config.rate = Some(Bitrate::from_mbit(10));
        config.delay = Duration::from_millis(5);
    });
    bed.offer_burst(3);
    assert_eq!(bed.drain(), [(0, 5_800), (1, 6_600), (2, 7_400)]);
}

#[test]
fn overhead_counts_against_the_rate() {
    let mut bed = Bed::new(|config| {
        config.rate = Some(Bitrate::from_mbit(10));
        config.overhead_bytes = 278;
    });
    bed.offer_burst(1);
    assert_eq!(bed.drain(), [(0, 1_000)]);
}

#[test]
fn the_long_run_rate_is_exact_where_a_packet_takes_no_whole_number_of_nanoseconds() {
    let mut bed = Bed::new(|config| {
        config.rate = Some(Bitrate::from_bits_per_second(7_000_003));
        config.queue_bytes = u64::MAX / 2;
    });
    let packets = 70_000;
    bed.offer_burst(packets);
    let expected = u128::from(packets) * 8_000 * NANOS_PER_SECOND / 7_000_003;
    let mut last = bed.start;
    while let Some(next) = bed.link.poll_timeout() {
        last = next;
        while bed.link.poll(next).is_some() {}
    }
    assert_eq!((last - bed.start).as_nanos(), expected);
}

#[test]
fn a_caller_that_comes_late_finds_the_times_unchanged() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    bed.offer_burst(10);
    let late = bed.start + Duration::from_millis(4);
    let arrived = std::iter::from_fn(|| bed.link.poll(late)).count();
    assert_eq!(arrived, 5);
    let next = bed.start + Duration::from_micros(4_800);
    assert_eq!(bed.link.poll_timeout(), Some(next));
}

#[test]
fn a_full_queue_drops_the_newest_by_bytes() {
    let mut bed = Bed::new(|config| {
        config.rate = Some(Bitrate::from_mbit(10));
        config.queue_bytes = 3_500;
    });
    bed.offer_burst(6);
    // One is being sent and three wait; half a packet still has room.
    bed.offer(0, 472);
    bed.offer(0, 472);
    let numbers: Vec<_> = bed.drain().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 6]);
    assert_eq!(bed.link.counters().queue_dropped, 3);
}

#[test]
fn the_queue_tells_how_long_it_takes() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    assert_eq!(bed.link.queue_delay(bed.start), Duration::ZERO);
    bed.offer_burst(4);
    assert_eq!(bed.link.queue_delay(bed.start), Duration::from_micros(3_200));
    let later = bed.start + Duration::from_millis(1);
    assert_eq!(bed.link.queue_delay(later), Duration::from_micros(2_200));
    let much_later = bed.start + Duration::from_millis(9);
    assert_eq!(bed.link.queue_delay(much_later), Duration::ZERO);
}

#[test]
fn a_new_rate_holds_for_the_rest_of_the_packet_being_sent_and_for_the_queue() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    bed.offer_burst(2);
    // Half of the first is out: its other half takes 4 ms at a tenth of the rate, the second 8 ms.
    let middle = bed.at(400);
    bed.link.set_rate(middle, Some(Bitrate::from_mbit(1))).unwrap();
    assert_eq!(bed.drain(), [(0, 4_400), (1, 12_400)]);
}

#[test]
fn a_new_configuration_holds_for_what_comes_and_keeps_what_is_inside() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    bed.offer_burst(2);
    let new = LinkConfig { mtu: Some(900), overhead_bytes: 0, seed: 99, ..bed.link.config().clone() };
    let seed = bed.link.config().seed;
    bed.link.set_config(bed.start, new).unwrap();
    assert_eq!((bed.link.config().seed, bed.link.config().overhead_bytes), (seed, 28));
    bed.offer_burst(1);
    assert_eq!(bed.drain(), [(0, 800), (1, 1_600)]);
    assert_eq!(bed.link.counters().mtu_dropped, 1);
    assert!(bed.link.set_config(bed.start, LinkConfig { mtu: Some(1), ..LinkConfig::default() }).is_err());
    assert_eq!(bed.link.config().mtu, Some(900));
}

#[test]
fn without_its_rate_a_link_lets_the_queue_go_at_once() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    bed.offer_burst(3);
    let middle = bed.at(1_000);
    bed.link.set_rate(middle, None).unwrap();
    assert_eq!(bed.drain(), [(0, 800), (1, 1_000), (2, 1_000)]);
    let later = bed.at(2_000);
    bed.link.set_rate(later, Some(Bitrate::from_mbit(10))).unwrap();
    bed.offer(2_000, PAYLOAD);
    assert_eq!(bed.drain(), [(3, 2_800)]);
}

#[test]
fn a_rate_of_zero_is_refused_and_changes_nothing() {
    let mut bed = Bed::new(|config| config.rate = Some(Bitrate::from_mbit(10)));
    let error = bed.link.set_rate(bed.start, Some(Bitrate::from_mbit(0))).unwrap_err();
    assert_eq!(error.field, "rate");
    assert_eq!(bed.link.config().rate, Some(Bitrate::from_mbit(10)));
}

#[test]
fn a_shorter_delay_does_not_make_packets_overtake() {
    let mut bed = Bed::new(|config| config.delay = Duration::from_millis(50));
    bed.offer(0, PAYLOAD);
    let later = bed.at(1_000);
    bed.link.set_delay(later, Duration::from_millis(10)).unwrap();
    bed.offer(1_000, PAYLOAD);
    bed.offer(45_000, PAYLOAD);
    assert_eq!(bed.drain(), [(0, 50_000), (1, 50_000), (2, 55_000)]);
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    for (order, kept) in [(Order::Kept, true), (Order::Free, false)] {
        let mut bed = Bed::new(|config| {
            config.delay = Duration::from_millis(60);
            config.jitter = Jitter { sd: Duration::from_millis(10), correlation: Duration::ZERO, order };
        });
        for number in 0..200 {
            bed.offer(number * 1_000, PAYLOAD);
        }
        let arrived = bed.drain();
        assert_eq!(arrived.len(), 200);
        assert!(arrived.is_sorted_by_key(|&(_, at)| at));
        assert_eq!(arrived.is_sorted_by_key(|&(number, _)| number), kept, "{order:?}");
    }
}

#[test]
fn a_packet_held_back_lets_those_behind_it_pass() {
    let mut bed = Bed::new(|config| {
        config.delay = Duration::from_millis(10);
        config.reorder = Reorder { share: 0.2, least: Duration::from_millis(3), most: Duration::from_millis(8) };
    });
    for number in 0..100 {
        bed.offer(number * 1_000, PAYLOAD);
    }
    let arrived = bed.drain();
    let held_back = |&&(number, at): &&(u64, u64)| at - number * 1_000 != 10_000;
    let late = arrived.iter().filter(held_back).count();
    assert!((10..=30).contains(&late), "{late} of 100 late");
    assert!(!arrived.is_sorted_by_key(|&(number, _)| number));
    assert!(
        arrived.iter().filter(held_back).all(|(number, at)| { (13_000..=18_000).contains(&(at - number * 1_000)) })
    );
}

#[test]
fn a_doubled_packet_arrives_twice_in_a_row() {
    let mut bed = Bed::new(|config| config.duplicate_share = 1.0);
    bed.offer_burst(2);
    assert_eq!(bed.drain(), [(0, 0), (0, 0), (1, 0), (1, 0)]);
    let counters = bed.link.counters();
    assert_eq!((counters.duplicated, counters.delivered), (2, 4));
}

#[test]
fn a_packet_larger_than_the_mtu_vanishes() {
    let mut bed = Bed::new(|config| config.mtu = Some(1_280));
    bed.offer(0, 1_252);
    bed.offer(0, 1_253);
    assert_eq!(bed.drain(), [(0, 0)]);
    assert_eq!(bed.link.counters().mtu_dropped, 1);
}

#[test]
fn loss_before_the_queue_takes_nothing_of_the_rate_and_loss_behind_it_does() {
    for (loss_place, last) in [(LossPlace::BeforeQueue, 40_000), (LossPlace::AfterQueue, 80_000)] {
        let mut bed = Bed::new(|config| {
            config.rate = Some(Bitrate::from_mbit(10));
            config.loss = Loss::Random(0.5);
            config.loss_place = loss_place;
        });
        bed.offer_burst(100);
        let arrived = bed.drain();
        let off = arrived.last().unwrap().1.abs_diff(last);
        assert!(off <= 10_000, "{loss_place:?}: {arrived:?}");
        assert_eq!(bed.link.counters().lost, 100 - arrived.len() as u64);
    }
}

#[test]
fn a_cut_drops_what_is_offered_and_what_leaves_the_queue_but_not_what_is_under_way() {
    let mut bed = Bed::new(|config| {
        config.rate = Some(Bitrate::from_mbit(10));
        config.delay = Duration::from_millis(5);
    });
    bed.offer_burst(3);
    let cut = bed.at(1_000);
    bed.link.cut(cut);
    bed.offer(1_000, PAYLOAD);
    let restored = bed.at(10_000);
    bed.link.restore(restored);
    bed.offer(10_000, PAYLOAD);
    assert_eq!(bed.drain(), [(0, 5_800), (4, 15_800)]);
    assert_eq!(bed.link.counters().outage_dropped, 3);
}

#[test]
fn a_scheduled_outage_drops_packets_while_it_lasts() {
    let mut bed = Bed::new(|config| {
        config.outages =
            Outages::Windows(vec![Window { from: Duration::from_millis(2), to: Duration::from_millis(4) }]);
    });
    for number in 0..6 {
        bed.offer(number * 1_000, PAYLOAD);
    }
    let numbers: Vec<_> = bed.drain().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 4, 5]);
}

#[test]
fn the_luck_of_a_packet_does_not_depend_on_what_else_the_link_does() {
    let lossy = |change: fn(&mut LinkConfig)| {
        let mut bed = Bed::new(|config| {
            config.loss = Loss::Random(0.1);
            change(config);
        });
        for number in 0..1_000 {
            bed.offer(number * 100, PAYLOAD);
        }
        let mut numbers: Vec<_> = bed.drain().into_iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let plain = lossy(|_| {});
    assert!((850..950).contains(&plain.len()));
    let busy = lossy(|config| {
        config.duplicate_share = 0.3;
        config.jitter.sd = Duration::from_millis(1);
        config.reorder.share = 0.5;
        config.reorder.most = Duration::from_millis(9);
    });
    assert_eq!(plain, busy);
}

#[test]
fn time_that_runs_backwards_counts_as_the_latest_seen() {
    let mut bed = Bed::new(|config| config.delay = Duration::from_millis(1));
    bed.offer(5_000, PAYLOAD);
    bed.offer(0, PAYLOAD);
    assert_eq!(bed.drain(), [(0, 6_000), (1, 6_000)]);
}

#[test]
fn a_configuration_that_cannot_be_makes_no_link() {
    let config = LinkConfig { loss: Loss::Random(2.0), ..LinkConfig::default() };
    let error = Link::<Bytes>::new(config, Instant::now()).unwrap_err();
    assert_eq!(error.to_string(), "loss.random is 2; allowed: 0 to 1");
}

/// A link, and packets that know their number.
struct Bed {
    link: Link<Numbered>,
    start: Instant,
    offered: u64,
    /// Each packet's number and the microsecond in which it arrived.
    arrived: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Numbered {
    number: u64,
    bytes: usize,
}

impl Packet for Numbered {
    fn payload_bytes(&self) -> usize {
        self.bytes
    }
}

impl Bed {
    fn new(change: impl FnOnce(&mut LinkConfig)) -> Self {
        let mut config = LinkConfig::default().with_seed(11);
        change(&mut config);
        let start = Instant::now();
        Self { link: Link::new(config, start).unwrap(), start, offered: 0, arrived: Vec::new() }
    }

    /// Goes to that many microseconds after the start and takes what arrives until then.
    fn at(&mut self, microseconds: u64) -> Instant {
        let now = self.start + Duration::from_micros(microseconds);
        self.take_until(Some(now));
        now
    }

    fn offer(&mut self, microseconds: u64, bytes: usize) {
        let number = self.offered;
        self.offered += 1;
        let now = self.at(microseconds);
        self.link.enqueue(now, Numbered { number, bytes });
    }

    fn offer_burst(&mut self, packets: u32) {
        for _ in 0..packets {
            let number = self.offered;
            self.offered += 1;
            self.link.enqueue(self.start, Numbered { number, bytes: PAYLOAD });
        }
    }

    /// Runs the link empty: each packet's number and the microsecond in which it arrived, since the start or the last call.
    fn drain(&mut self) -> Vec<(u64, u64)> {
        self.take_until(None);
        std::mem::take(&mut self.arrived)
    }

    fn take_until(&mut self, until: Option<Instant>) {
        while let Some(next) = self.link.poll_timeout()
            && until.is_none_or(|until| next <= until)
        {
            while let Some(packet) = self.link.poll(next) {
                let at = next.saturating_duration_since(self.start).as_micros();
                self.arrived.push((packet.number, at.try_into().unwrap()));
            }
        }
    }
}
