//! Control datagrams: the wire and back, what is refused, and what is sealed.

use proptest::prelude::*;

use super::*;
use crate::keys::{Role, SessionKeys};

fn any_frame() -> impl Strategy<Value = Frame> {
    let report = (0..MAX_PATHS as u8, any::<[u32; 4]>(), any::<[u64; 2]>(), any::<i32>())
        .prop_flat_map(|fields| (Just(fields), prop::collection::vec(any::<u8>(), 0..=MAX_MAP_LEN)))
        .prop_map(|((path, [datagrams, highest, reordering, lag], [bytes, delay_sum], delay_average), map)| {
            let map = map.into();
            PathReport { path, datagrams, bytes, highest, delay_sum, delay_average, reordering, lag, map }
        });
    let path_sent = (0..MAX_PATHS as u8, any::<[u64; 5]>(), any::<[u32; 4]>()).prop_map(
        |(path, [datagrams, bytes, judged, lost, skipped], [queue, noise, copy_rate, send_errors])| PathSent {
            skipped,
            noise,
            copy_rate,
            path,
            datagrams,
            bytes,
            judged,
            lost,
            queue,
            send_errors,
        },
    );
    let role = prop_oneof![Just(PathRole::Use), Just(PathRole::Backup), Just(PathRole::Gone)];
    let order = (0..MAX_PATHS as u8, role, prop::option::of(0..UNLIMITED))
        .prop_map(|(path, role, rate)| (PathId(path), PathOrder { role, rate }));
    prop_oneof![
        Just(Frame::Ping),
        Just(Frame::Join),
        Just(Frame::Joined),
        any::<[u8; 8]>().prop_map(Frame::Challenge),
        any::<[u8; 8]>().prop_map(Frame::Answer),
        (0..MAX_PATHS as u8).prop_map(|path| Frame::Leave(PathId(path))),
        (any::<u32>(), any::<bool>(), prop::collection::vec(order, 0..=MAX_PATHS)).prop_map(
            |(sequence, copy, orders)| Frame::Wish {
                sequence,
                download: if copy { Copying::Bicast } else { Copying::Single },
                orders: orders.into(),
            }
        ),
        prop::collection::vec(report, 0..=MAX_PATHS).prop_map(|paths| Frame::Report(paths.into())),
        (any::<[u64; 7]>(), prop::collection::vec(path_sent, 0..=MAX_PATHS)).prop_map(
            |([datagrams, copies, copies_skipped, copies_useful, copy_bytes, judged, lost], paths)| Frame::Sent(
                SentReport { copies_useful, copy_bytes, datagrams, copies, copies_skipped, judged, lost, paths }
            )
        ),
        any::<u16>().prop_map(Frame::MtuProbe),
        any::<u16>().prop_map(Frame::MtuAck),
    ]
}

proptest! {
    #[test]
    fn a_sealed_message_is_opened_as_it_was(
        frames in prop::collection::vec(any_frame(), 0..6),
        echo in prop::option::of((any::<u32>(), 0..u32::MAX)),
        clock: u32, counter: u64, padding in 0u16..300,
    ) {
        let (client, relay) = (SessionKeys::derive(&[1; 32], Role::Client), SessionKeys::derive(&[1; 32], Role::Relay));
        let mut message = Message { path: PathId(3), clock, echo, frames: frames.into() };
        if padding > 0 {
            message.frames.push(Frame::Padding(padding));
        }
        let mut wire = Vec::new();
        seal(&client.send, client.id, counter, &message, &mut wire);
        prop_assert_eq!(session_of(&wire), Some(relay.id));
        prop_assert_eq!(open(&relay.recv, &mut wire), Some((counter, Ok(message))));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(message) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(Message::decode(&again), Ok(message));
        }
    }
}

#[test]
fn a_message_of_many_frames_is_refused_before_it_costs_memory() {
    let message = [&[0; 13][..], &[1; 1_400]].concat();
    let error = Message::decode(&message).expect_err("1,400 pings");
    assert_eq!(error.to_string(), "number of frames is 17, allowed is at most 16");
}

#[test]
fn a_role_that_does_not_exist_is_named() {
    let wish = [&[0; 13][..], &[7, 0, 0, 0, 1, 0, 1, 3, 3, 0, 0, 0, 0]].concat();
    let error = Message::decode(&wish).expect_err("role 3");
    assert_eq!(error.to_string(), "role of a path is 3, allowed is at most 2");
}

#[test]
fn a_path_out_of_range_is_named() {
    let error = Message::decode(&[8; 20]).expect_err("path 8");
    assert_eq!(error.to_string(), "path is 8, allowed is at most 7");
}
