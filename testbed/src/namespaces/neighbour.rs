//! How the router makes itself known on a network: answers to ARP and to IPv6 neighbour solicitations for the gateway.
//!
//! Only for the gateway: a host that takes an address beyond for a neighbour finds nobody, as on a real network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ETHERNET, Frame};
use super::packet::{ARP, Header, ICMP6, IPV6, V6_HEADER, packet};

/// The bytes of an ARP packet for IPv4 on Ethernet (RFC 826).
const ARP_LENGTH: usize = 28;
/// ICMPv6's number for a neighbour solicitation (RFC 4861).
const SOLICITATION: u8 = 135;
/// ICMPv6's number for a neighbour advertisement.
const ADVERTISEMENT: u8 = 136;

/// The answer to an ARP request for `gateway`, to be sent as it is.
pub(super) fn answer_arp(asked: &Frame, gateway: Ipv4Addr, mac: [u8; 6]) -> Option<Frame> {
    let request = asked.packet().get(..ARP_LENGTH)?;
    if request[..8] != [0, 1, 8, 0, 6, 4, 0, 1] || request[24..28] != gateway.octets() {
        return None;
    }
    let mut answer = [0; ARP_LENGTH];
    answer[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    answer[8..14].copy_from_slice(&mac);
    answer[14..18].copy_from_slice(&gateway.octets());
    answer[18..28].copy_from_slice(&request[8..18]);
    let mut frame = Frame::with_packet(&answer);
    frame.address(<[u8; 6]>::try_from(&request[8..14]).ok()?, mac, ARP);
    Some(frame)
}

/// The answer to a neighbour solicitation for `gateway`, to be sent as it is.
pub(super) fn answer_solicitation(asked: &Frame, gateway: Ipv6Addr, mac: [u8; 6]) -> Option<Frame> {
    let bytes = asked.packet();
    let header = Header::read(bytes).filter(|header| header.protocol == ICMP6)?;
    let message = bytes.get(V6_HEADER..V6_HEADER + 24)?;
    // A solicitation without a source asks whether the address is free, and is not answered: it never asks for the gateway's.
    if message[0] != SOLICITATION || message[8..24] != gateway.octets() || header.source.is_unspecified() {
        return None;
    }
    // Router, solicited, override; then the option with the link-layer address.
    let mut answer = vec![ADVERTISEMENT, 0, 0, 0, 0xe0, 0, 0, 0];
    answer.extend_from_slice(&gateway.octets());
    answer.extend_from_slice(&[2, 1]);
    answer.extend_from_slice(&mac);
    let answer = packet(IpAddr::V6(gateway), header.source, ICMP6, 2, answer)?;
    let mut frame = Frame::with_packet(&answer);
    frame.address(<[u8; 6]>::try_from(&asked.ethernet()[6..ETHERNET - 2]).ok()?, mac, IPV6);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn arp_is_answered_for_the_gateway_alone() {
        let mut request = [0; ARP_LENGTH];
        request[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        request[8..14].copy_from_slice(&ASKER);
        request[14..18].copy_from_slice(&[192, 168, 1, 2]);
        request[24..28].copy_from_slice(&[192, 168, 1, 1]);
        let asked = Frame::with_packet(&request);
        let answer = answer_arp(&asked, Ipv4Addr::new(192, 168, 1, 1), MAC).unwrap();
        assert_eq!(answer.ethernet()[..6], ASKER);
        assert_eq!(answer.packet()[8..14], MAC);
        assert_eq!(answer.packet()[24..28], [192, 168, 1, 2]);
        assert!(answer_arp(&asked, Ipv4Addr::new(192, 168, 1, 7), MAC).is_none());
    }

    #[test]
    fn a_solicitation_is_answered_for_the_gateway_alone() {
        let (gateway, host) = ("2a02:1::1".parse::<Ipv6Addr>().unwrap(), "2a02:1::2".parse().unwrap());
        let message = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &gateway.octets(), &[1, 1], &ASKER].concat();
        let mut asked = Frame::with_packet(&packet(host, gateway.into(), ICMP6, 2, message).unwrap());
        asked.address(MAC, ASKER, IPV6);
        let answer = answer_solicitation(&asked, gateway, MAC).unwrap();
        let header = Header::read(answer.packet()).unwrap();
        assert_eq!((header.source, header.destination), (gateway.into(), host));
        assert_eq!(answer.packet()[V6_HEADER + 26..], MAC);
        assert!(answer_solicitation(&asked, Ipv6Addr::LOCALHOST, MAC).is_none());
    }
}
