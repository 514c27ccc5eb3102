//! A link that has grown its queues allocates no more, whatever it does to packets.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tandem_netem::{Bitrate, Jitter, Link, LinkConfig, Loss, Order, Reorder};

#[test]
fn a_link_in_steady_state_does_not_allocate() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(Bitrate::from_mbit(100)),
        delay: Duration::from_millis(20),
        jitter: Jitter { sd: Duration::from_millis(2), correlation: Duration::from_millis(10), order: Order::Free },
        loss: Loss::bursts(0.05, 4.0),
        reorder: Reorder { share: 0.1, least: Duration::from_millis(1), most: Duration::from_millis(5) },
        duplicate_share: 0.05,
        mtu: Some(1_400),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, start).unwrap();
    let payload = Bytes::from_static(&[0; 1_372]);
    let mut run = |packets: std::ops::Range<u32>| {
        for number in packets {
            // 110 Mbit/s: the queue is always full.
            let now = start + Duration::from_micros(102) * number;
            link.enqueue(now, payload.clone());
            while link.poll(now).is_some() {}
        }
        link.counters()
    };
    let grown = run(0..20_000);
    let measured = allocation_counter::measure(|| {
        let after = run(20_000..30_000);
        assert!(after.delivered - grown.delivered > 8_000);
        assert!(after.queue_dropped > grown.queue_dropped);
    });
    assert_eq!(measured.count_total, 0, "{measured:?}");
}
