//! What holds for every link, whatever its configuration and whatever is offered when.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic, in its helpers too")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tandem_netem::{Bitrate, Counters, Jitter, Link, LinkConfig, Loss, LossPlace, Order, Outages, Packet, Reorder};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: usize,
    bytes: usize,
}

impl Packet for Numbered {
    fn payload_bytes(&self) -> usize {
        self.bytes
    }
}

/// A packet's payload in bytes, and the time since the one before.
type Offer = (usize, Duration);

/// A packet and when it arrived, counted from the start.
type Arrival = (Numbered, Duration);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_packet_is_accounted_for_at_every_moment(config in any_config(), offers in offers()) {
        let start = Instant::now();
        let mut link = Link::new(config, start).unwrap();
        let mut now = start;
        for (number, (bytes, gap)) in offers.into_iter().enumerate() {
            now += gap;
            link.enqueue(now, Numbered { number, bytes });
            if number % 3 == 0 {
                link.poll(now);
            }
            prop_assert_eq!(accounted(link.counters(), link.inside()), link.counters().offered);
        }
        while let Some(next) = link.poll_timeout() {
            link.poll(next);
        }
        prop_assert_eq!(link.inside(), 0);
        prop_assert_eq!(accounted(link.counters(), 0), link.counters().offered);
    }

    #[test]
    fn no_window_of_time_carries_more_than_the_rate(
        kilobits in 100u32..200_000,
        queue_bytes in 0u64..300_000,
        offers in offers(),
    ) {
        let rate = Bitrate::from_kbit(kilobits);
        let config = LinkConfig { rate: Some(rate), queue_bytes, delay: Duration::from_millis(7), ..LinkConfig::default() };
        let (arrivals, counters) = run(config, &offers);
        prop_assert_eq!(counters.delivered + counters.queue_dropped, offers.len() as u64);
        // A packet arrives with its last bit, so that the bits between two arrivals are those of all but the first.
        for (place, &(_, first)) in arrivals.iter().enumerate() {
            let mut bits = 0;
            for &(packet, at) in &arrivals[place + 1..] {
                bits += (packet.bytes as u128 + 28) * 8;
                let capacity = u128::from(rate.bits_per_second()) * (at - first).as_nanos() / 1_000_000_000;
                // Times are rounded down to the nanosecond, each by less than one.
                prop_assert!(bits <= capacity + u128::from(rate.bits_per_second()) / 1_000_000_000 + 1);
            }
        }
    }

    #[test]
    fn packets_keep_their_order_unless_the_link_reorders(config in any_config(), offers in offers()) {
        let config = LinkConfig {
            jitter: Jitter { order: Order::Kept, ..config.jitter },
            reorder: Reorder::default(),
            ..config
        };
        let (arrivals, _) = run(config, &offers);
        prop_assert!(arrivals.is_sorted_by_key(|(packet, _)| packet.number));
        prop_assert!(arrivals.is_sorted_by_key(|(_, at)| *at));
    }

    #[test]
    fn no_packet_arrives_before_its_delay_has_passed(config in any_config(), offers in offers()) {
        let config = LinkConfig { jitter: Jitter::default(), ..config };
        let delay = config.delay;
        let (arrivals, _) = run(config, &offers);
        let offered: Vec<Duration> = offers
            .iter()
            .scan(Duration::ZERO, |at, (_, gap)| { *at += *gap; Some(*at) })
            .collect();
        for (packet, at) in arrivals {
            prop_assert!(at >= offered[packet.number] + delay);
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs(config in any_config(), offers in offers()) {
        prop_assert_eq!(run(config.clone(), &offers), run(config, &offers));
    }

    #[test]
    fn how_often_the_caller_looks_changes_nothing(config in any_config(), offers in offers()) {
        let (arrivals, counters) = run(config.clone(), &offers);
        let start = Instant::now();
        let mut link = Link::new(config, start).unwrap();
        let mut now = start;
        for (number, &(bytes, gap)) in offers.iter().enumerate() {
            now += gap;
            link.enqueue(now, Numbered { number, bytes });
        }
        // Once only, long after the last.
        let late = now + Duration::from_secs(3_600);
        let order: Vec<_> = std::iter::from_fn(|| link.poll(late)).collect();
        prop_assert_eq!(order, arrivals.into_iter().map(|(packet, _)| packet).collect::<Vec<_>>());
        prop_assert_eq!(link.counters(), counters);
    }
}

/// Runs a link until it is empty, looking whenever it asks to.
fn run(config: LinkConfig, offers: &[Offer]) -> (Vec<Arrival>, Counters) {
    let start = Instant::now();
    let mut link = Link::new(config, start).unwrap();
    let mut arrivals = Vec::new();
    let mut look = |link: &mut Link<Numbered>, until: Option<Instant>| {
        while let Some(next) = link.poll_timeout().filter(|next| until.is_none_or(|until| *next <= until)) {
            while let Some(packet) = link.poll(next) {
                arrivals.push((packet, next.saturating_duration_since(start)));
            }
        }
    };
    let mut now = start;
    for (number, &(bytes, gap)) in offers.iter().enumerate() {
        now += gap;
        look(&mut link, Some(now));
        link.enqueue(now, Numbered { number, bytes });
    }
    look(&mut link, None);
    let counters = link.counters();
    (arrivals, counters)
}

fn accounted(counters: Counters, inside: usize) -> u64 {
    let gone =
        counters.delivered + counters.lost + counters.queue_dropped + counters.outage_dropped + counters.mtu_dropped;
    gone + inside as u64 - counters.duplicated
}

fn offers() -> impl Strategy<Value = Vec<Offer>> {
    // Bursts and pauses: half of the packets follow at once.
    let gap = prop_oneof![Just(0u64), 0u64..5_000].prop_map(Duration::from_micros);
    prop::collection::vec((0usize..1_600, gap), 1..120)
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let share = || prop_oneof![Just(0.0), 0.0..=1.0];
    let time = |most: u64| (0..=most).prop_map(Duration::from_micros);
    let loss = prop_oneof![
        Just(Loss::None),
        share().prop_map(Loss::Random),
        (share(), share(), share(), share()).prop_map(|(good_to_bad, bad_to_good, loss_good, loss_bad)| {
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad }
        }),
    ];
    let place = prop_oneof![Just(LossPlace::BeforeQueue), Just(LossPlace::AfterQueue)];
    let order = prop_oneof![Just(Order::Kept), Just(Order::Free)];
    let jitter =
        (time(20_000), time(50_000), order).prop_map(|(sd, correlation, order)| Jitter { sd, correlation, order });
    let reorder = (share(), time(5_000), time(9_000)).prop_map(|(share, least, more)| Reorder {
        share,
        least,
        most: least + more,
    });
    let outages = prop_oneof![
        Just(Outages::None),
        (time(50_000), time(9_000), time(20_000)).prop_map(|(first, lasting, more)| {
            Outages::Periodic { first, lasting, every: lasting + more + Duration::from_micros(1) }
        }),
    ];
    let rate = prop::option::of((64u32..200_000).prop_map(Bitrate::from_kbit));
    let mtu = prop::option::of(500u32..1_600);
    (
        (rate, 0u64..200_000, time(50_000), jitter, loss, place),
        (reorder, share(), mtu, outages, 0u32..100, any::<u64>()),
    )
        .prop_map(|(first, second)| {
            let (rate, queue_bytes, delay, jitter, loss, loss_place) = first;
            let (reorder, duplicate_share, mtu, outages, overhead_bytes, seed) = second;
            LinkConfig {
                rate,
                queue_bytes,
                delay,
                jitter,
                loss,
                loss_place,
                reorder,
                duplicate_share,
                mtu,
                outages,
                overhead_bytes,
                seed,
            }
        })
}
