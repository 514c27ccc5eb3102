//! Paths that fail, fall silent, come back or are removed, and what was on its way over them.

use super::*;

#[test]
fn a_silent_path_is_given_up_within_half_a_second_and_comes_back() {
    for wire in 0..2 {
        let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
        for number in 0..100 {
            pair.send_from_client(&numbered(number));
            pair.run(10 * MS);
        }
        pair.wires[wire].cut = true;
        let cut_at = pair.now;
        let mut seen = None;
        for number in 100..300 {
            pair.send_from_client(&numbered(number));
            pair.run(10 * MS);
            if pair.client.paths[wire].state == PathState::Down {
                seen.get_or_insert(pair.now - cut_at);
            }
        }
        let after = seen.expect("the path goes down");
        assert!(after <= 500 * MS, "after {after:?}");
        assert_eq!(pair.relay_got.len(), 300, "nothing is lost meanwhile");
        pair.wires[wire].cut = false;
        pair.run(3_000 * MS);
        assert_eq!(pair.states(), [vec![PathState::Up; 2], vec![PathState::Up; 2]]);
    }
}

/// SLEEP-1
#[test]
fn after_a_sleep_no_path_is_believed_until_it_answers_and_one_round_trip_is_enough() {
    let mut pair = Pair::joined(Mode::Single);
    pair.wires[1].cut = true;
    pair.client.suspect_all("slept", pair.now);
    assert!(pair.client.signs().all(|signs| signs.state == PathState::Down));
    assert_eq!(pair.send_from_client(&[0x40; 500]).targets.len(), 2, "either may be the first to work again");
    pair.run(25 * MS);
    assert_eq!(pair.states()[0], [PathState::Up, PathState::Down]);
    pair.wires[1].cut = false;
    pair.run(70 * MS);
    assert_eq!(pair.states()[0], [PathState::Up, PathState::Up]);
}

/// PATH-8
#[test]
fn a_path_whose_socket_fails_is_left_out_and_tried_again() {
    let mut pair = Pair::joined(Mode::Bicast(Sides::Both));
    let mut departure = pair.send_from_client(&numbered(0));
    let (failed, _) = departure.targets.iter().next().expect("two targets");
    pair.client.not_sent(&mut departure, failed, Some("network is unreachable"), pair.now);
    let next = pair.send_from_client(&numbered(1));
    assert!(next.targets.iter().all(|(path, _)| path != failed));
    assert_eq!(pair.client.snapshot(pair.now).up.copies_skipped, 1);
    pair.run(250 * MS);
    assert_eq!(pair.send_from_client(&numbered(2)).targets.len(), 2);
}

/// PATH-8: in single mode the datagram that could not be sent goes by the other path at once.
#[test]
fn what_a_failing_socket_did_not_take_goes_by_the_other_path() {
    let mut pair = Pair::joined(Mode::Single);
    let mut out = Vec::new();
    let mut departure = pair.client.depart(&numbered(0), 1_200, HoldClass::Full, pair.now, &mut out);
    let (failed, _) = departure.targets.iter().next().expect("a target");
    pair.client.not_sent(&mut departure, failed, Some("network is unreachable"), pair.now);
    pair.run(11 * MS);
    assert_eq!(pair.relay_got, [numbered(0)]);
}

/// When a path dies in silence, what was on its way there and a round trip's worth of what followed arrives by the other.
#[test]
fn what_was_lost_with_a_path_goes_again_by_the_other() {
    let mut pair = Pair::joined(Mode::Single);
    for number in 0..100 {
        pair.send_from_client(&numbered(number));
        pair.run(10 * MS);
    }
    let used = usize::from(pair.client.scheduler.preferred().expect("a path").0);
    pair.wires[used].cut = true;
    for number in 100..150 {
        pair.send_from_client(&numbered(number));
        pair.run(10 * MS);
    }
    pair.run(100 * MS);
    let got: std::collections::BTreeSet<_> = pair.relay_got.iter().cloned().collect();
    assert_eq!(got, (0..150).map(numbered).collect());
    assert!((20..50).contains(&pair.client.counters().rescued), "{}", pair.client.counters().rescued);
}

/// A direction that dies alone: what comes in tells nothing of what gets out.
#[test]
fn a_relay_that_is_heard_but_hears_nothing_or_the_reverse_keeps_to_the_other_path() {
    for (to_relay, used_by_relay) in [(true, false), (false, true)] {
        let mut pair = Pair::joined(Mode::Single);
        let mut moved_back = 0;
        for number in 0..600 {
            pair.send_from_client(&numbered(number));
            pair.send_from_relay(&numbered(number));
            pair.run(10 * MS);
            if number == 100 {
                let link = if used_by_relay { &pair.relay } else { &pair.client };
                pair.cut_one_way = link.scheduler.preferred().map(|path| (to_relay, usize::from(path.0)));
            }
            let link = if used_by_relay { &pair.relay } else { &pair.client };
            let dead = pair.cut_one_way.map(|(_, wire)| wire);
            let preferred = link.scheduler.preferred().map(|path| usize::from(path.0));
            moved_back += u32::from(number > 150 && preferred == dead);
        }
        assert_eq!(moved_back, 0, "to the relay: {to_relay}");
        let lost = 600
            - if to_relay { &pair.relay_got } else { &pair.client_got }
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len();
        assert!(lost <= 2, "{lost} lost, to the relay: {to_relay}");
    }
}

/// A Leave that gets lost: the relay forgets the path by itself.
#[test]
fn what_was_on_its_way_over_a_path_that_is_removed_goes_again_by_the_other() {
    let mut pair = Pair::joined(Mode::Single);
    let [carrier, _] = [pair.send_from_client(&numbered(0)), pair.send_from_relay(&numbered(0))]
        .map(|departure| departure.targets.iter().next().expect("a path").0);
    pair.run(50 * MS);
    pair.wires[usize::from(carrier.0)].cut = true;
    for number in 1..20 {
        pair.send_from_client(&numbered(number));
        pair.send_from_relay(&numbered(number));
    }
    pair.client.remove_path(carrier, pair.now);
    pair.run(25 * MS);
    assert_eq!((pair.relay_got.len(), pair.client_got.len()), (20, 20));
}

#[test]
fn a_relay_that_hears_from_a_path_it_had_given_up_asks_at_once_whether_it_works() {
    let mut pair = Pair::joined(Mode::Single);
    pair.run(2_000 * MS);
    let (clock, now) = (pair.relay.clock(pair.now), pair.now);
    pair.relay.paths[0].go_down("test", clock, now);
    pair.client.ping(PathId(0), now);
    pair.run(29 * MS);
    assert_eq!(pair.relay.paths[0].state, PathState::Down);
    pair.run(2 * MS);
    assert_eq!(pair.relay.paths[0].state, PathState::Up);
}

#[test]
fn a_relay_forgets_a_path_that_nothing_comes_on() {
    let mut pair = Pair::joined(Mode::Single);
    // Without a word: no Leave, no other wish.
    pair.client.forget(PathId(1));
    pair.run(60_000 * MS);
    assert_eq!(pair.relay.addresses().count(), 2);
    pair.run(60_000 * MS);
    assert_eq!(pair.relay.addresses().collect::<Vec<_>>(), [at_relay(1_000)]);
    pair.wires[0].cut = true;
    pair.run(600_000 * MS);
    assert_eq!(pair.relay.addresses().count(), 1, "the last one stays");
}
