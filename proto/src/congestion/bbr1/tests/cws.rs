//! BBR-CWS on a link of its own, where scaling must cost nothing. What it is for, sharing, needs others on the link.

use super::*;

fn flow(link: Link, seed: u64) -> Flow {
    Flow::new(|now| PacedSender::new(Box::new(Bbr1::cws(SMSS, seed, now)), SMSS, now), link, seed)
}

#[test]
fn a_link_of_its_own_is_used_to_ninety_five_percent_with_two_bandwidth_delay_products() {
    for seed in 0..4 {
        let mut flow = flow(Link::standard(), seed);
        flow.run(secs(4.0));
        let lost = flow.lost;
        let rate = flow.run(secs(5.0));
        assert!(rate >= 95.0, "seed {seed}: {rate} Mbit/s");
        assert_eq!(flow.lost, lost, "seed {seed}");
        // Two of 125 kB, three bursts of a millisecond, and what bandwidth and round trip are taken for too much.
        let window = flow.sender.control().cwnd;
        assert!((250_000..=310_000).contains(&window), "seed {seed}: {window}");
    }
}

#[test]
fn random_loss_costs_little_more_than_what_is_lost() {
    for (loss, least) in [(0.01, 92.0), (0.15, 0.8 * 85.0)] {
        for seed in 0..4 {
            let mut flow = flow(Link { loss, ..Link::standard() }, seed);
            flow.run(secs(2.0));
            let rate = flow.run(secs(10.0));
            assert!(rate >= least, "loss {loss}, seed {seed}: {rate} Mbit/s");
        }
    }
}

#[test]
fn ten_times_the_bandwidth_is_found_and_a_tenth_of_it_respected() {
    let mut flow = flow(Link { rate: mbit(10.0), ..Link::standard() }, 5);
    flow.run(secs(5.0));
    flow.link.rate = mbit(100.0);
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
