//! The relay's table of peers: whoever writes from wherever, it stays consistent and bounded.

use tandem_proto::keys::SessionId;
use tandem_proto::path::PathAddress;
use tandem_proto::peers::{PeerId, Peers, Route};

use super::input::Input;

/// Peers that the target remembers to act on.
const REMEMBERED: usize = 64;

fn address(number: u16) -> PathAddress {
    PathAddress { socket: usize::from(number >> 14), remote: ([192, 0, 2, 1], number).into(), local: None }
}

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut peers = Peers::default();
    let mut known: Vec<(PeerId, bool)> = Vec::new();
    while !input.is_empty() {
        let act = input.u8();
        match act % 8 {
            0..3 => {
                let from = address(u16::from(input.u8()));
                let payload = input.block();
                if let Route::New { peer, forgotten } = peers.route(from, payload) {
                    known.retain(|(id, _)| Some(*id) != forgotten);
                    if known.len() < REMEMBERED {
                        known.push((peer, false));
                    }
                }
            }
            // A crowd of strangers.
            3 => {
                let (first, count) = (input.u16(), u16::from(input.u8()));
                for number in 0..count {
                    let mut payload = initial(first, number);
                    payload[0] ^= act & 0b1000_0000;
                    if let Route::New { forgotten: Some(gone), .. } =
                        peers.route(address(first.wrapping_add(number)), &payload)
                    {
                        known.retain(|(id, _)| *id != gone);
                    }
                }
            }
            action if !known.is_empty() => {
                let index = input.below(known.len());
                let (peer, established) = known[index];
                match action {
                    4 if !established => {
                        peers.establish(peer, SessionId([input.u8() & 3; 8]));
                        known[index].1 = true;
                    }
                    5 => peers.on_answer(peer, input.block()),
                    6 if established => {
                        if let Some(nobody) = peers.add_address(peer, address(u16::from(input.u8()))) {
                            known.retain(|(id, _)| *id != nobody);
                        }
                    }
                    6 => peers.remove_address(peer, address(u16::from(input.u8()))),
                    _ => {
                        peers.remove(peer);
                        known.swap_remove(index);
                    }
                }
            }
            _ => {}
        }
    }
    peers.check();
}

/// Like an Initial of QUIC's with connection IDs of its own.
fn initial(first: u16, number: u16) -> Vec<u8> {
    let mut payload = vec![0xc0, 0, 0, 0, 1, 8];
    payload.extend([first.to_be_bytes(), number.to_be_bytes()].concat().repeat(2));
    payload.push(8);
    payload.extend([number.to_be_bytes(), first.to_be_bytes()].concat().repeat(2));
    payload.resize(60, 0);
    payload
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let step = |act: u8, from: u8, payload: &[u8]| [&[act, from, payload.len() as u8], payload].concat();
    let handshake =
        [step(0, 1, &initial(1, 2)), step(0, 2, &initial(1, 2)), step(5, 0, &initial(3, 4)), vec![4, 0, 1]].concat();
    let moving = [handshake.clone(), step(0, 9, &[0x10; 40]), vec![6, 0, 9, 6, 0, 10, 6, 0, 9]].concat();
    let control = [&[0b0010_0000][..], &[1; 8], &[0; 40]].concat();
    let crowd = [[3, 0, 0, 255].repeat(3), vec![3, 4, 0, 255, 3, 8, 0, 255], [3, 16, 0, 255].repeat(2)].concat();
    vec![
        handshake.clone(),
        moving,
        [handshake.clone(), step(1, 7, &control), vec![7, 0]].concat(),
        [handshake, crowd.clone(), vec![7, 0]].concat(),
        crowd,
    ]
}
