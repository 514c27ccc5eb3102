//! Backups, slowed paths, and how the relay learns of both.

use super::*;
use crate::path::order::{PathOrder, PathRole};

const BACKUP: PathOrder = PathOrder { role: PathRole::Backup, rate: None };
const SECOND: Duration = Duration::from_secs(1);

/// A session whose second path is a backup, with some traffic behind it.
fn with_backup(mode: Mode) -> Pair {
    let mut pair = Pair::joined(mode);
    // Nearer than the path for use: it would be preferred.
    pair.wires[1].delay = 2 * MS;
    pair.client.set_order(PathId(1), BACKUP, pair.now);
    talk(&mut pair, 2 * SECOND);
    pair
}

/// Both ends send every 5 ms; what each sent on every path, in bytes, data and all.
fn talk(pair: &mut Pair, span: Duration) -> [[u64; 2]; 2] {
    let bytes = |pair: &Pair| {
        [&pair.client, &pair.relay].map(|link| {
            let of = |id| link.path(PathId(id)).map_or(0, |path| path.departures.bytes);
            [of(0), of(1)]
        })
    };
    let (before, end) = (bytes(pair), pair.now + span);
    let mut number = 0;
    while pair.now < end {
        pair.send_from_client(&numbered(number));
        pair.send_from_relay(&numbered(number));
        pair.run(5 * MS);
        number += 1;
    }
    let after = bytes(pair);
    [0, 1].map(|end| [0, 1].map(|path| after[end][path].saturating_sub(before[end][path])))
}

#[test]
fn a_backup_carries_nothing_in_either_direction_and_costs_next_to_nothing() {
    for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
        let mut pair = with_backup(mode);
        let data = |link: &Link| link.path(PathId(1)).map(|path| path.departures.datagrams);
        let before = [data(&pair.client), data(&pair.relay)];
        let sent = talk(&mut pair, 10 * SECOND);
        assert_eq!([data(&pair.client), data(&pair.relay)], before, "{mode}: no datagram of QUIC's");
        for end in sent {
            assert!(end[0] > 2_000_000, "{mode}: {sent:?}");
            assert!((200..4_000).contains(&end[1]), "{mode}: {sent:?} in 10 s");
        }
    }
}

#[test]
fn the_relay_learns_what_paths_are_for_though_most_of_what_tells_it_gets_lost() {
    let mut pair = Pair::joined(Mode::Single);
    pair.wires.iter_mut().for_each(|wire| wire.loss = 0.6);
    pair.client.set_order(PathId(0), PathOrder { role: PathRole::Backup, rate: Some(50_000) }, pair.now);
    talk(&mut pair, 2 * SECOND);
    assert_eq!(pair.relay.order(PathId(0)), PathOrder { role: PathRole::Backup, rate: Some(50_000) });
    pair.client.set_order(PathId(0), PathOrder::default(), pair.now);
    talk(&mut pair, 2 * SECOND);
    assert_eq!(pair.relay.order(PathId(0)), PathOrder::default());
}

#[test]
fn a_backup_takes_over_as_soon_as_any_other_path_would_and_is_left_calmly() {
    let gap = |order: PathOrder| {
        let mut pair = Pair::joined(Mode::Single);
        pair.client.set_order(PathId(1), order, pair.now);
        talk(&mut pair, 3 * SECOND);
        pair.wires[0].cut = true;
        let (cut, end) = (pair.now, pair.now + 2 * SECOND);
        let (mut heard, mut got) = ([None; 2], [pair.client_got.len(), pair.relay_got.len()]);
        let mut number = 1_000;
        while pair.now < end {
            pair.send_from_client(&numbered(number));
            pair.send_from_relay(&numbered(number));
            pair.run(MS);
            number += 1;
            let now_got = [pair.client_got.len(), pair.relay_got.len()];
            for end in 0..2 {
                // What was on the wire when it was cut has arrived by then.
                if now_got[end] > got[end] && pair.now - cut > 15 * MS {
                    heard[end].get_or_insert(pair.now - cut);
                }
            }
            got = now_got;
        }
        (heard.map(|heard| heard.expect("it took over")), pair)
    };
    let (as_any_other, _) = gap(PathOrder::default());
    let (as_backup, mut pair) = gap(BACKUP);
    for end in 0..2 {
        assert!(as_backup[end] <= as_any_other[end] + 50 * MS, "{as_backup:?} against {as_any_other:?}");
    }
    pair.wires[0].cut = false;
    let mut changes = 0;
    let mut preferred = pair.client.scheduler.preferred();
    assert_eq!(preferred, Some(PathId(1)));
    for _ in 0..100 {
        talk(&mut pair, 100 * MS);
        changes += u32::from(pair.client.scheduler.preferred() != preferred);
        preferred = pair.client.scheduler.preferred();
    }
    assert_eq!((preferred, changes), (Some(PathId(0)), 1));
    assert_eq!(pair.relay.scheduler.preferred(), Some(PathId(0)));
}

#[test]
fn a_backup_takes_over_from_a_path_that_loses_much_and_not_from_one_that_loses_little() {
    for (loss, left) in [(0.05, false), (0.3, true)] {
        let mut pair = with_backup(Mode::Single);
        pair.wires[0].loss = loss;
        let mut left_after = None;
        for step in 0..100 {
            talk(&mut pair, 100 * MS);
            if pair.relay.scheduler.preferred() == Some(PathId(1)) {
                left_after.get_or_insert(step);
            }
        }
        assert_eq!(left_after.is_some(), left, "{loss}: {left_after:?}");
        assert!(left_after.is_none_or(|after| after < 80), "after {left_after:?} tenths of a second");
    }
}

#[test]
fn a_path_with_a_rate_carries_no_more_than_that_and_no_copy_is_lost_to_others() {
    let rate = 20_000;
    for mode in [Mode::Single, Mode::Bicast(Sides::Both)] {
        let mut pair = Pair::joined(mode);
        pair.client.set_order(PathId(1), PathOrder { role: PathRole::Use, rate: Some(rate) }, pair.now);
        talk(&mut pair, SECOND);
        pair.client_got.clear();
        let sent = talk(&mut pair, 10 * SECOND);
        for end in sent {
            assert!(end[1] <= 11 * u64::from(rate), "{mode}: {sent:?}");
            assert!(end[0] > 2_000_000, "{mode}: {sent:?}");
            assert!(mode == Mode::Single || end[1] > 7 * u64::from(rate), "copies as far as they fit: {sent:?}");
        }
        assert_eq!(pair.client.shut_until(pair.now), None, "the other path is not slowed");
    }
}

#[test]
fn the_only_path_makes_the_sender_wait_for_its_rate() {
    let mut pair = Pair::joined(Mode::Single);
    pair.client.set_order(PathId(0), PathOrder { role: PathRole::Use, rate: Some(100_000) }, pair.now);
    pair.client.remove_path(PathId(1), pair.now);
    pair.run(100 * MS);
    for from_client in [true, false] {
        let (start, mut sent) = (pair.now, 0);
        while pair.now < start + 5 * SECOND {
            let now = pair.now;
            let link = if from_client { &mut pair.client } else { &mut pair.relay };
            match link.shut_until(now) {
                Some(until) => pair.run((until - now).max(MS)),
                None => {
                    let departure = if from_client {
                        pair.send_from_client(&numbered(sent))
                    } else {
                        pair.send_from_relay(&numbered(sent))
                    };
                    assert_eq!(departure.targets.len(), 1);
                    sent += 1;
                }
            }
        }
        // 1,240 bytes each with all headers, beside pings and reports.
        assert!((330..=410).contains(&sent), "{sent}");
    }
}

#[test]
fn a_leave_that_got_lost_is_made_up_for_by_the_next_wish() {
    let mut pair = Pair::joined(Mode::Single);
    talk(&mut pair, SECOND);
    let wires = pair.wires.clone();
    pair.wires.iter_mut().for_each(|wire| wire.cut = true);
    pair.client.remove_path(PathId(0), pair.now);
    pair.flush();
    pair.wires = wires;
    talk(&mut pair, SECOND);
    assert_eq!(pair.states()[1].len(), 1, "the relay has forgotten it");
    // The number is used again.
    while pair.client.add_path(at_client(0), pair.now) != Some(PathId(0)) {
        let last = pair.client.paths.last().map(|path| path.id).expect("it was added");
        pair.client.remove_path(last, pair.now);
    }
    talk(&mut pair, SECOND);
    assert_eq!(pair.client.order(PathId(0)), PathOrder::default());
    assert_eq!(pair.relay.order(PathId(0)), PathOrder::default());
}
