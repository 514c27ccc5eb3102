//! Drives the controller with the hooks, and in the order, in which the QUIC library calls them.

use super::*;
use crate::transport::congestion::ReportedLoss;

const MTU: u16 = 1_200;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn controller(algorithm: Algorithm, now: Instant) -> (CongestionHandle, Switchable) {
    let handle = CongestionHandle::new(algorithm, now);
    let controller = Switchable::new(handle.clone(), 7, now, MTU);
    (handle, controller)
}

fn queue_loss(sent_at: Instant, queue_exceeded: bool) -> ReportedLoss {
    ReportedLoss { number: 0, bytes: MTU.into(), sent_at, queue_exceeded }
}

#[test]
fn a_rate_based_controller_paces_through_the_gate_and_hands_its_handle_to_the_poller() {
    let start = now();
    let (handle, mut bbr) = controller(Algorithm::Bbr1, start);
    // One round at 1 datagram per millisecond, acknowledged 20 ms later, gives the rate.
    for k in 0..10 {
        bbr.on_sent(start + ms(k), MTU.into(), k);
    }
    for k in 0..10 {
        let at = start + ms(20 + k);
        bbr.packet_acked(at, start + ms(k), MTU.into(), false, ms(20));
        bbr.on_end_acks(at, (9 - k) * u64::from(MTU), false, Some(k));
    }
    assert_eq!(handle.metrics().algorithm, Algorithm::Bbr1);
    assert!(handle.metrics().pacing_rate.is_some());
    pacing::take();
    let at = start + ms(30);
    bbr.on_sent(at, 100_000_000, 10);
    bbr.on_sent(at, u64::from(MTU), 11);
    let taken = pacing::take().unwrap();
    assert!(taken.shut_until(at).is_some());
    assert!(taken.shut_until(at + ms(25)).is_none(), "no transmit waits longer than the horizon");
}

#[tokio::test(start_paused = true)]
async fn a_full_window_keeps_no_acknowledgement_back_for_longer_than_it_may_be_put_off() {
    for algorithm in Algorithm::ALL {
        let (handle, mut controller) = controller(algorithm, now());
        let window = controller.window();
        controller.on_sent(now(), window, 1);
        tokio::time::advance(ms(25)).await;
        assert_eq!(controller.window(), window, "nothing is owed");
        handle.note_arrived(40);
        assert_eq!(controller.window(), window, "acknowledgements are not acknowledged");
        handle.note_arrived(1_200);
        // The library sends while what it has in flight and the next datagram are less.
        assert_eq!(controller.window(), window + u64::from(MTU) + 1);
        controller.on_sent(now(), MTU.into(), 2);
        handle.note_arrived(1_200);
        assert!(controller.window() <= window, "once in 25 ms");
        tokio::time::advance(ms(25)).await;
        assert_eq!(controller.window(), window + 2 * u64::from(MTU) + 1);
    }
}

#[test]
fn the_window_told_lets_as_much_fly_as_the_controller_allows() {
    let (handle, bbr) = controller(Algorithm::Bbr1, now());
    assert_eq!(bbr.window(), handle.metrics().cwnd_bytes + 1);
    assert_eq!(bbr.window(), bbr.initial_window() + 1);
    assert_eq!(bbr.metrics().congestion_window, bbr.initial_window());
    let (handle, cubic) = controller(Algorithm::Cubic, now());
    assert_eq!(cubic.window(), handle.metrics().cwnd_bytes);
}

#[test]
fn the_algorithm_changes_at_the_next_hook_and_keeps_the_mtu() {
    let start = now();
    let (handle, mut controller) = controller(Algorithm::Cubic, start);
    controller.on_sent(start, MTU.into(), 0);
    assert_eq!(handle.pacing().shut_until(start), None);
    controller.on_mtu_update(1_400);
    handle.set_algorithm(Algorithm::Bbr1);
    assert_eq!(handle.metrics().algorithm, Algorithm::Cubic);
    controller.on_sent(start + ms(1), 1_400, 1);
    assert_eq!(handle.metrics().algorithm, Algorithm::Bbr1);
    assert_eq!(controller.initial_window(), 14_000);
    // What was sent under the old controller is acknowledged and lost under the new one.
    controller.packet_acked(start + ms(20), start, MTU.into(), false, ms(20));
    controller.on_end_acks(start + ms(20), 1_400, false, Some(0));
    controller.on_congestion_event(start + ms(21), start, false, u64::from(MTU));
    assert!(controller.window() > 4 * 1_400);
    handle.set_algorithm(Algorithm::NewReno);
    controller.on_end_acks(start + ms(30), 1_400, false, None);
    assert_eq!(handle.metrics().algorithm, Algorithm::NewReno);
    assert_eq!(handle.pacing().shut_until(start + ms(30)), None);
    assert_eq!(handle.pacing().max_segments(10), 10);
}

#[test]
fn the_far_side_holds_for_a_loss_based_controller_in_full_and_only_while_the_window_limits() {
    let start = now();
    for (algorithm, class) in [
        (Algorithm::Cubic, HoldClass::Full),
        (Algorithm::NewReno, HoldClass::Full),
        (Algorithm::Bbr1, HoldClass::Short),
        (Algorithm::Bbr2, HoldClass::Short),
        (Algorithm::BbrCws, HoldClass::Short),
    ] {
        let (handle, mut controller) = controller(algorithm, start);
        controller.on_sent(start, MTU.into(), 0);
        controller.packet_acked(start + ms(20), start, MTU.into(), true, ms(20));
        controller.on_end_acks(start + ms(20), 0, true, Some(0));
        assert_eq!(handle.pacing().hold_class(start + ms(20)), HoldClass::None, "{algorithm} with little to send");
        controller.on_sent(start + ms(21), MTU.into(), 1);
        controller.packet_acked(start + ms(41), start + ms(21), MTU.into(), false, ms(20));
        controller.on_end_acks(start + ms(41), 0, false, Some(1));
        assert_eq!(handle.pacing().hold_class(start + ms(160)), class, "{algorithm}");
        assert_eq!(handle.pacing().hold_class(start + ms(161)), HoldClass::None, "{algorithm} after a pause");
    }
}

#[test]
fn a_reported_loss_counts_once_and_only_if_its_path_had_a_queue() {
    let start = now() + ms(1);
    for (algorithm, kept) in [(Algorithm::Cubic, 0.7), (Algorithm::NewReno, 0.5)] {
        let (handle, mut controller) = controller(algorithm, start - ms(1));
        let before = controller.window();
        handle.report_loss(queue_loss(start, false));
        controller.on_end_acks(start + ms(20), 0, false, None);
        assert_eq!(controller.window(), before, "{algorithm}: no queue");
        handle.report_loss(queue_loss(start, true));
        handle.report_loss(queue_loss(start + ms(1), true));
        controller.on_end_acks(start + ms(21), 0, false, None);
        let after = controller.window();
        assert_eq!(after, (before as f64 * kept) as u64, "{algorithm}");
        // The same loss end to end, and one more of the same round.
        controller.on_congestion_event(start + ms(22), start, false, u64::from(MTU));
        handle.report_loss(queue_loss(start + ms(2), true));
        controller.on_end_acks(start + ms(23), 0, false, None);
        assert_eq!(controller.window(), after, "{algorithm}: one reaction a round");
        handle.report_loss(queue_loss(start + ms(30), true));
        controller.on_end_acks(start + ms(50), 0, false, None);
        assert!(controller.window() < after, "{algorithm}: the next round");
    }
}

#[test]
fn reported_losses_change_no_rate_based_controller() {
    let start = now();
    let (handle, mut bbr) = controller(Algorithm::Bbr1, start);
    let before = bbr.window();
    handle.report_loss(queue_loss(start, true));
    bbr.on_end_acks(start + ms(20), 0, false, None);
    assert_eq!(bbr.window(), before);
}

#[test]
fn a_short_hold_widens_the_window_of_a_rate_based_controller_and_a_long_one_does_not() {
    let start = now();
    let window = |lag| {
        let (handle, mut bbr) = controller(Algorithm::Bbr1, start);
        handle.set_hold(lag, ms(20));
        for k in 0..400 {
            let sent = start + ms(k);
            bbr.on_sent(sent, 12_000, k);
            if let Some(k) = k.checked_sub(20) {
                bbr.packet_acked(sent, start + ms(k), 12_000, false, ms(20));
                bbr.on_end_acks(sent, 20 * 12_000, false, Some(k));
            }
        }
        bbr.window()
    };
    let plain = window(Duration::ZERO);
    assert!(window(ms(5)) >= plain + 50_000, "{} against {plain}", window(ms(5)));
    assert_eq!(window(ms(6)), plain);
}

#[test]
fn an_ecn_mark_counts_as_loss_once_a_round() {
    let start = now();
    let (_, mut cubic) = controller(Algorithm::Cubic, start);
    let before = cubic.window();
    cubic.on_congestion_event(start + ms(20), start + ms(1), false, 0);
    assert!(cubic.window() < before);
    let (_, mut bbr) = controller(Algorithm::Bbr1, start);
    for k in 0..8 {
        bbr.on_sent(start, MTU.into(), k);
    }
    bbr.packet_acked(start + ms(20), start, MTU.into(), false, ms(20));
    bbr.on_end_acks(start + ms(20), 7 * u64::from(MTU), false, Some(0));
    let before = bbr.window();
    bbr.on_congestion_event(start + ms(20), start, false, 0);
    let once = bbr.window();
    assert!(once < before);
    bbr.on_congestion_event(start + ms(21), start, false, 0);
    assert_eq!(bbr.window(), once);
}

#[test]
fn a_copy_shares_the_handle_and_has_a_model_of_its_own() {
    let start = now();
    let (handle, mut bbr) = controller(Algorithm::Bbr1, start);
    let copy = bbr.clone_box();
    let before = copy.window();
    for k in 0..8 {
        bbr.on_sent(start, MTU.into(), k);
    }
    bbr.on_congestion_event(start + ms(20), start, true, u64::from(MTU));
    assert!(bbr.window() < before);
    assert_eq!(copy.window(), before);
    let copy = copy.into_any().downcast::<Switchable>().unwrap();
    assert!(Arc::ptr_eq(&copy.handle.0, &handle.0));
}

#[test]
fn a_factory_builds_the_algorithm_asked_for() {
    let start = now();
    for algorithm in Algorithm::ALL {
        let handle = CongestionHandle::new(algorithm, start);
        let built = handle.factory(1).build(start, MTU);
        assert_eq!(built.initial_window(), 12_000);
        assert_eq!(handle.metrics().algorithm, algorithm);
        assert_eq!(handle.metrics().cwnd_bytes, 12_000);
    }
}
