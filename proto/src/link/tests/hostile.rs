//! Strangers, forgers and nonsense: what they cannot do.

use super::*;

/// PATH-10
#[test]
fn before_an_address_is_proved_it_gets_three_times_what_came_from_it() {
    let mut pair = Pair::new(Mode::Single);
    pair.send_from_client(&[0xc0; 1_200]);
    pair.run(30 * MS);
    for _ in 0..20 {
        pair.send_from_relay(&[0xc0; 1_200]);
    }
    for (port, sent) in &pair.relay_sent_to {
        assert!(*sent <= 3 * pair.relay_got_from[port], "{sent} bytes went to {port}");
    }
    assert_eq!(pair.relay_sent_to.len(), 2);
}

/// A valid control datagram that an on-path attacker sends on from another address moves nothing there.
#[test]
fn an_address_that_does_not_answer_the_challenge_gets_no_data() {
    let mut pair = Pair::joined(Mode::Single);
    pair.wires[0].cut = true;
    let stolen = {
        pair.client.ping(PathId(0), pair.now);
        pair.client.poll_transmit().expect("a ping").bytes
    };
    for _ in 0..50 {
        pair.inject_at_relay(6_666, stolen.clone());
    }
    pair.run(100 * MS);
    for number in 0..50 {
        let departure = pair.send_from_relay(&numbered(number));
        assert!(departure.targets.iter().all(|(_, address)| address.remote.port() != 6_666));
    }
    assert_eq!(pair.relay.counters().replayed, 49);
}

#[test]
fn garbage_forgeries_and_replays_change_nothing() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let stranger = SessionKeys::derive(&[1; SECRET_LEN], Role::Client);
    let mut out = Vec::new();
    for number in 0..400u32 {
        // Forged headers with good numbers come before the real datagram, replays after it.
        let mut forged = Vec::new();
        Header::encode_into(
            &stranger.send,
            number.into(),
            0,
            HoldClass::Full,
            Part::Whole,
            &numbered(number),
            &mut forged,
        );
        pair.inject_at_relay(1_000, forged);
        let message = Message { path: PathId(0), clock: 1, echo: None, frames: smallvec![Frame::Leave(PathId(1))] };
        seal(
            &stranger.send,
            pair.client.session_id().expect("keys"),
            1_000_000 + u64::from(number),
            &message,
            &mut out,
        );
        pair.inject_at_relay(1_000, out.clone());
        pair.send_from_client(&numbered(number));
        let real = pair.flying.values().last().expect("just sent").payload.clone();
        pair.run(11 * MS);
        pair.inject_at_relay(1_000, real);
    }
    assert_eq!(pair.relay_got, (0..400).map(numbered).collect::<Vec<_>>());
    assert_eq!(pair.states(), [vec![PathState::Up; 2], vec![PathState::Up; 2]]);
    assert!(pair.relay.counters().forged >= 800);
}

#[test]
fn what_is_longer_than_any_network_carries_is_dropped_though_it_is_signed() {
    let mut pair = Pair::joined(Mode::Single);
    let client = SessionKeys::derive(&SECRET, Role::Client);
    for (number, len, got) in [(0, 1_488, 1), (1, 1_489, 1)] {
        let (mut out, body) = (Vec::new(), vec![0x40; len]);
        Header::encode_into(&client.send, number, 0, HoldClass::Full, Part::Whole, &body, &mut out);
        pair.inject_at_relay(1_000, out);
        assert_eq!(pair.relay_got.len(), got, "{len} bytes behind the header");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_on_either_end_are_survived(
        payloads in prop::collection::vec((any::<bool>(), 0usize..3, prop::collection::vec(any::<u8>(), 0..80)), 1..80),
    ) {
        let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
        for (to_relay, kind, mut payload) in payloads {
            // Also what looks like ours: header or control datagram by its first byte.
            if let Some(first) = payload.first_mut() {
                *first = [*first, 0b0001_0001, 0b0010_0000][kind];
            }
            if to_relay {
                pair.inject_at_relay(1_000, payload);
            } else {
                pair.client.handle(at_client(0), &mut payload, pair.now, &mut |_: &[u8]| {});
            }
        }
        pair.relay_got.clear();
        pair.send_from_client(&numbered(1));
        pair.run(200 * MS);
        prop_assert!(pair.relay_got.contains(&numbered(1)));
    }
}
