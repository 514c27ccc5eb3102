//! Translation between an IPv6-only network and the IPv4 internet (RFC 7915, with the well-known prefix of RFC 6052).
//!
//! TCP and UDP only. Addresses are translated here, ports by the [`Nat`](super::nat) behind it. A packet that would be
//! longer than the network's 1,500 bytes as IPv6 is dropped in silence, as fragments are not made here.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::frame::Frame;
use super::packet::{Header, TCP, UDP, V6_HEADER, checksum};

/// `64:ff9b::/96`.
const PREFIX: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
/// The bytes of an IPv4 header without options.
const V4_HEADER: usize = 20;
/// The longest IPv6 packet on the network.
const LONGEST: usize = 1_500;

/// The IPv6 address by which the translator reaches an IPv4 one.
pub(super) fn synthesized(address: Ipv4Addr) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..12].copy_from_slice(&PREFIX);
    octets[12..].copy_from_slice(&address.octets());
    octets.into()
}

/// The IPv4 address meant by a synthesized one.
pub(super) fn meant(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    octets.starts_with(&PREFIX).then(|| Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]))
}

/// Turns a packet into IPv4 between these addresses. Returns whether it could.
pub(super) fn to_v4(frame: &mut Frame, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
    let Some(header) = read(frame, V6_HEADER) else { return false };
    let packet = frame.packet_mut();
    let traffic_class = packet[0] << 4 | packet[1] >> 4;
    let hop_limit = packet[7];
    let total = (packet.len() - V6_HEADER + V4_HEADER) as u16;
    let old = <[u8; 32]>::try_from(&packet[8..V6_HEADER]).expect("two addresses");
    let mut new = [0; V4_HEADER];
    new[0] = 0x45;
    new[1] = traffic_class;
    new[2..4].copy_from_slice(&total.to_be_bytes());
    new[6] = 0x40;
    (new[8], new[9]) = (hop_limit, header.protocol);
    new[12..16].copy_from_slice(&source.octets());
    new[16..].copy_from_slice(&destination.octets());
    let sum = checksum(&[&new]);
    new[10..12].copy_from_slice(&sum.to_be_bytes());
    header.adjust_for_addresses(packet, &old, &new[12..]);
    frame.replace_header(V6_HEADER, &new);
    true
}

/// Turns a packet into IPv6 between these addresses. Returns whether it could.
pub(super) fn to_v6(frame: &mut Frame, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
    let Some(header) = read(frame, V4_HEADER) else { return false };
    let packet = frame.packet_mut();
    if packet.len() - V4_HEADER + V6_HEADER > LONGEST {
        return false;
    }
    let old = <[u8; 8]>::try_from(&packet[12..V4_HEADER]).expect("two addresses");
    let mut new = [0; V6_HEADER];
    new[0] = 0x60 | packet[1] >> 4;
    new[1] = packet[1] << 4;
    new[4..6].copy_from_slice(&((packet.len() - V4_HEADER) as u16).to_be_bytes());
    (new[6], new[7]) = (header.protocol, packet[8]);
    new[8..24].copy_from_slice(&source.octets());
    new[24..].copy_from_slice(&destination.octets());
    header.adjust_for_addresses(packet, &old, &new[8..]);
    frame.replace_header(V4_HEADER, &new);
    true
}

fn read(frame: &Frame, length: usize) -> Option<Header> {
    let header = Header::read(frame.packet()).filter(|header| header.transport == length)?;
    // UDP without a checksum is allowed over IPv4 alone; nothing in the bed sends it.
    matches!(header.protocol, TCP | UDP).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::packet::{is_sound, udp};

    #[test]
    fn a_packet_crosses_and_comes_back_sound() {
        let (client, relay) = ("2a02:1::2".parse().unwrap(), Ipv4Addr::new(45, 10, 0, 2));
        let sent = udp(client, 5_000, synthesized(relay).into(), 4_433, b"there and back").unwrap();
        let mut frame = Frame::with_packet(&sent);
        let std::net::IpAddr::V6(client) = client else { unreachable!() };
        assert!(to_v4(&mut frame, Ipv4Addr::new(81, 2, 3, 4), meant(synthesized(relay)).unwrap()));
        assert!(is_sound(frame.packet()));
        assert_eq!(frame.packet()[16..20], relay.octets());
        assert!(to_v6(&mut frame, client, synthesized(relay)));
        assert!(is_sound(frame.packet()));
        assert_eq!(frame.packet()[V6_HEADER..][8..], sent[V6_HEADER..][8..]);
    }

    #[test]
    fn what_is_too_long_as_ipv6_does_not_pass() {
        let data = vec![7; 1_500 - 28];
        let sent = udp("45.10.0.2".parse().unwrap(), 1, "81.2.3.4".parse().unwrap(), 2, &data).unwrap();
        assert!(!to_v6(&mut Frame::with_packet(&sent), Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
    }
}
