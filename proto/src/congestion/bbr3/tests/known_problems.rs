//! What went wrong elsewhere with controllers of this kind.

use super::*;

#[test]
fn a_radio_that_falls_silent_now_and_then_does_not_wear_the_model_out() {
    for (name, make) in BOTH {
        let mut flow = flow(make, Link { rtt: Duration::from_millis(20), queue: 500_000, ..Link::standard() }, 7);
        flow.run(secs(2.0));
        for _ in 0..10 {
            flow.link.acks_wait_until = flow.elapsed() + secs(0.2);
            flow.run(secs(1.0));
        }
        // Ten rounds after the silence of 200 ms.
        flow.link.acks_wait_until = flow.elapsed() + secs(0.2);
        flow.run(secs(0.4));
        let rate = flow.run(secs(2.0));
        assert!(rate >= 80.0, "{name}: {rate} Mbit/s");
        assert!(flow.bandwidth() <= 110.0, "{name}: {}", flow.bandwidth());
    }
}

#[test]
fn sparse_acknowledgements_and_batches_on_a_short_round_trip_do_not_wear_the_bandwidth_down() {
    let rtt = Duration::from_micros(300);
    let every = Duration::from_millis(2);
    let mut flow = flow(Bbr3::new, Link { rate: mbit(200.0), rtt, acks_come_every: every, ..Link::standard() }, 10);
    flow.batch = 10;
    flow.run(secs(1.0));
    let plateau = flow.bandwidth();
    assert!(plateau >= 160.0, "{plateau}");
    flow.run_observing(secs(59.0), |flow| {
        assert!(flow.bandwidth() >= 0.8 * plateau, "{} of {plateau} at {:?}", flow.bandwidth(), flow.elapsed());
    });
}

#[test]
fn ten_minutes_of_little_traffic_do_not_pull_the_bandwidth_down() {
    for (name, make) in BOTH {
        let mut flow = flow(make, Link { rate: mbit(50.0), ..Link::standard() }, 4);
        flow.run(secs(3.0));
        flow.offered = Some(mbit(1.0));
        flow.run(secs(600.0));
        flow.offered = None;
        flow.run(secs(0.5));
        let rate = flow.run(secs(2.5));
        assert!(rate >= 40.0, "{name}: {rate} Mbit/s");
    }
}

#[test]
fn the_full_rate_is_back_soon_after_the_route_grew_longer() {
    for (name, make) in BOTH {
        let mut flow = flow(make, Link { rtt: Duration::from_millis(20), queue: 750_000, ..Link::standard() }, 6);
        flow.run(secs(5.0));
        flow.link.rtt = Duration::from_millis(60);
        flow.run(secs(15.0));
        let rate = flow.run(secs(5.0));
        assert!(rate >= 90.0, "{name}: {rate} Mbit/s");
    }
}

#[test]
fn a_trickle_hardly_notices_that_the_round_trip_is_looked_for() {
    for (name, make) in BOTH {
        let mut flow = flow(make, Link { rtt: Duration::from_millis(20), ..Link::standard() }, 8);
        flow.run(secs(3.0));
        flow.offered = Some(mbit(1.0));
        flow.run(secs(1.0));
        let (mut last, mut gap) = ((flow.delivered, flow.elapsed()), Duration::ZERO);
        let rate = flow.run_observing(secs(62.0), |flow| {
            if flow.delivered > last.0 {
                gap = gap.max(flow.elapsed() - last.1);
                last = (flow.delivered, flow.elapsed());
            }
        });
        assert!(rate >= 0.98, "{name}: {rate} Mbit/s");
        assert!(gap <= Duration::from_millis(50), "{name}: {gap:?}");
    }
}

#[test]
fn batches_and_late_timers_cost_next_to_nothing() {
    for (batch, late_micros) in [(10, 0), (1, 1_000), (10, 1_000)] {
        for (loss, least) in [(0.0, 95.0), (0.01, 90.0), (0.1, 80.0)] {
            let mut flow = flow(Bbr3::new, Link { loss, ..Link::standard() }, 9);
            flow.batch = batch;
            flow.timer_late = Duration::from_micros(late_micros);
            flow.run(secs(3.0));
            let rate = flow.run(secs(10.0));
            eprintln!("batches of {batch}, {late_micros} us late, loss {loss}: {rate:.1} Mbit/s");
            assert!(rate >= least, "batches of {batch}, {late_micros} us late, loss {loss}: {rate} Mbit/s");
        }
    }
}

#[test]
fn a_lossy_start_finds_the_bandwidth_all_the_same() {
    for (loss, share) in [(0.1, 0.8), (0.2, 0.7)] {
        for seed in 0..4 {
            let mut flow = flow(Bbr3::new, Link { loss, ..Link::standard() }, seed);
            flow.run(secs(2.5));
            let rate = flow.run(secs(5.0));
            eprintln!("loss {loss}, seed {seed}: {rate:.1} Mbit/s");
            assert!(rate >= share * 100.0 * (1.0 - loss), "loss {loss}, seed {seed}: {rate} Mbit/s");
        }
    }
}
