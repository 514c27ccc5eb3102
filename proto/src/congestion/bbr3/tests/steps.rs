//! Step responses: what a flow of its own does on a link that is steady, slow, lossy or changes.

use super::*;

#[test]
fn it_walks_along_the_diagram_and_leaves_startup_by_the_plateau() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link::standard(), 1);
        let seen = flow.phases(secs(2.5));
        let names: Vec<_> = seen.iter().map(|&(phase, _)| phase).collect();
        assert!(names.starts_with(&["startup", "drain", "cruise", "refill", "up", "down"]), "{name}: {seen:?}");
        // Twelve rounds of at most twice the bare round trip.
        assert!(seen[1].1 < secs(0.24), "{name}: {seen:?}");
        assert!((98.0..=102.0).contains(&flow.bandwidth()), "{name}: {}", flow.bandwidth());
    }
}

#[test]
fn a_link_of_its_own_is_used_to_ninety_five_percent_with_next_to_no_loss() {
    for (name, make) in EVERY {
        for seed in 0..4 {
            let mut flow = flow(make, Link::standard(), seed);
            flow.run(secs(2.0));
            let (sent, lost) = (flow.sent, flow.lost);
            let rate = flow.run(secs(10.0));
            let share = (flow.lost - lost) as f64 / (flow.sent - sent) as f64;
            assert!(rate >= 95.0, "{name}, seed {seed}: {rate} Mbit/s");
            assert!(share < 0.002, "{name}, seed {seed}: {share}");
        }
    }
}

#[test]
fn ten_times_the_bandwidth_is_found_within_two_probes() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link { rate: mbit(10.0), ..Link::standard() }, 5);
        flow.run(secs(5.0));
        flow.link.rate = mbit(100.0);
        // Two waits of at most 3 s and their probes.
        flow.run(secs(6.5));
        let rate = flow.run(secs(2.0));
        assert!(rate >= 90.0, "{name}: {rate} Mbit/s");
    }
}

#[test]
fn a_tenth_of_the_bandwidth_is_respected_soon() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link::standard(), 6);
        flow.run(secs(5.0));
        flow.link.rate = mbit(10.0);
        flow.run(secs(1.0));
        let before = flow.sent;
        flow.run(secs(2.0));
        let sending = (flow.sent - before) as f64 * 8e-6 / 2.0;
        assert!(sending <= 12.0, "{name}: {sending} Mbit/s");
        flow.run(secs(2.0));
        let rate = flow.run(secs(3.0));
        assert!(rate >= 9.0, "{name}: {rate} Mbit/s");
        // Twice the base and 100 ms.
        assert!(flow.longest_wait <= Duration::from_millis(110), "{name}: {:?}", flow.longest_wait);
        // Two waits of at most 3 s and their probes are over, though *probe_rtt* came in between.
        flow.run(secs(6.0));
        assert!(flow.bandwidth() <= 11.0, "{name}: {}", flow.bandwidth());
    }
}

#[test]
fn the_delay_is_low_again_soon_after_a_link_with_a_deep_queue_fell_to_a_tenth() {
    for seed in 0..4 {
        let link = Link { rate: mbit(20.0), rtt: Duration::from_millis(40), queue: 250_000, ..Link::standard() };
        let mut flow = flow(Bbr3::new, link, seed);
        flow.run(secs(5.0 + 0.3 * seed as f64));
        flow.link.rate = mbit(2.0);
        flow.run(secs(5.0));
        let rate = flow.run(secs(5.0));
        // Twice the base and 100 ms.
        assert!(flow.longest_wait <= Duration::from_millis(140), "seed {seed}: {:?}", flow.longest_wait);
        assert!(rate >= 1.6, "seed {seed}: {rate} Mbit/s");
        flow.link.rate = mbit(20.0);
        flow.run(secs(10.0));
        let rate = flow.run(secs(2.0));
        assert!(rate >= 16.0, "seed {seed}: {rate} Mbit/s");
    }
}

#[test]
fn drain_ends_after_three_rounds_though_the_link_got_slower() {
    for (name, make) in BOTH {
        let mut flow = flow(make, Link { queue: 1_000_000, ..Link::standard() }, 7);
        while flow.sender.metrics().phase != "drain" {
            flow.run(Duration::from_millis(1));
        }
        flow.link.rate = mbit(20.0);
        let rtt = flow.link.rtt + Duration::from_secs_f64(1_000_000.0 / mbit(20.0) as f64);
        let seen = flow.phases(rtt * 5);
        assert!(seen.iter().any(|&(phase, _)| phase == "down"), "{name}: {seen:?}");
    }
}

#[test]
fn a_link_slower_than_a_packet_per_round_trip_is_neither_starved_nor_flooded() {
    for (name, make) in EVERY {
        let link = Link { rate: mbit(0.064), rtt: Duration::from_millis(50), queue: 30_000, ..Link::standard() };
        let mut flow = flow(make, link, 8);
        flow.run(secs(20.0));
        let lost = flow.lost;
        let rate = flow.run(secs(60.0));
        assert!(rate >= 0.95 * 0.064, "{name}: {rate} Mbit/s");
        assert_eq!(flow.lost, lost, "{name}");
        assert!(flow.sender.control().cwnd <= 12 * SMSS, "{name}: {:?}", flow.sender.control());
    }
}

#[test]
fn one_percent_of_loss_costs_the_draft_a_fifth_and_ours_next_to_nothing() {
    for seed in 0..4 {
        let goodput = |make| {
            let mut flow = flow(make, Link { loss: 0.01, ..Link::standard() }, seed);
            flow.run(secs(3.0));
            flow.run(secs(10.0))
        };
        let (draft, ours) = (goodput(Bbr3::draft), goodput(Bbr3::new));
        eprintln!("seed {seed}: draft {draft:.1}, ours {ours:.1} Mbit/s");
        assert!(draft >= 70.0, "{draft}");
        assert!(ours >= 92.0, "{ours}");
    }
}

#[test]
fn a_policer_is_found_by_its_losses() {
    // Round trip in milliseconds, random loss besides, and the most that may be lost in all.
    for (rtt, loss, most_lost) in [(10, 0.0, 0.06), (40, 0.0, 0.03), (40, 0.05, 0.10)] {
        let link = Link { rate: mbit(20.0), policer: Some(100_000), loss, ..Link::standard() };
        let mut flow = flow(Bbr3::new, Link { rtt: Duration::from_millis(rtt), ..link }, 9);
        flow.run(secs(5.0));
        let (sent, lost) = (flow.sent, flow.lost);
        let rate = flow.run(secs(30.0));
        let share = (flow.lost - lost) as f64 / (flow.sent - sent) as f64;
        eprintln!("{rtt} ms, random loss {loss}: {rate:.1} Mbit/s, {:.1} % lost", 100.0 * share);
        assert!(rate >= 17.0, "{rate} Mbit/s");
        assert!(share < most_lost, "{share}");
    }
}

#[test]
fn a_deep_queue_stays_nearly_empty() {
    // 5 Mbit/s with room for two seconds.
    let link = Link { rate: mbit(5.0), rtt: Duration::from_millis(30), queue: 1_250_000, ..Link::standard() };
    let mut flow = flow(Bbr3::new, link, 10);
    flow.waits = Some(Vec::new());
    let rate = flow.run(secs(30.0));
    let mut waits = flow.waits.take().unwrap();
    waits.sort_unstable();
    let p95 = waits[waits.len() * 95 / 100];
    eprintln!("{rate:.2} Mbit/s, 95 % wait at most {p95:?}");
    assert!(rate >= 4.0, "{rate}");
    assert!(p95 <= Duration::from_millis(150), "{p95:?}");
}

#[test]
fn the_bare_round_trip_is_looked_for_at_most_every_five_seconds_and_for_a_fifth_of_one() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link { rtt: Duration::from_millis(20), ..Link::standard() }, 3);
        let seen = flow.phases(secs(40.0));
        let probes: Vec<_> = seen.iter().zip(&seen[1..]).filter(|((phase, _), _)| *phase == "probe_rtt").collect();
        assert!((4..=8).contains(&probes.len()), "{name}: {probes:?}");
        for ((_, from), (next, until)) in &probes {
            assert_eq!(*next, "cruise", "{name}");
            let length = *until - *from;
            assert!(length >= secs(0.2) && length < secs(0.3), "{name}: {length:?}");
        }
        for pair in probes.windows(2) {
            assert!(pair[1].0.1 - pair[0].0.1 >= secs(5.0), "{name}: {probes:?}");
        }
    }
}

#[test]
fn a_startup_that_lasts_longer_than_five_seconds_goes_on_after_looking_for_the_round_trip() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link::standard(), 4);
        // So little to send that the pipe is never found full.
        flow.offered = Some(mbit(2.0));
        let seen = flow.phases(secs(12.0));
        let names: Vec<_> = seen.iter().map(|&(phase, _)| phase).collect();
        assert!(names.starts_with(&["startup", "probe_rtt", "startup"]), "{name}: {seen:?}");
        flow.offered = None;
        flow.run(secs(1.0));
        let rate = flow.run(secs(2.0));
        assert!(rate >= 90.0, "{name}: {rate} Mbit/s");
    }
}

#[test]
fn an_application_that_stops_during_refill_loses_no_bandwidth_and_goes_on_to_up() {
    for (name, make) in EVERY {
        let mut flow = flow(make, Link::standard(), 5);
        flow.run(secs(1.5));
        while flow.sender.metrics().phase != "refill" {
            flow.run(Duration::from_millis(1));
        }
        let before = flow.bandwidth();
        flow.offered = Some(mbit(3.0));
        let seen = flow.phases(secs(0.2));
        assert_eq!(seen.iter().map(|&(phase, _)| phase).collect::<Vec<_>>(), ["refill", "up"], "{name}");
        assert!(flow.bandwidth() >= before, "{name}");
    }
}
