//! Reading and rewriting IP packets in place, checksums included.
//!
//! [`Header::read`] finds what a router needs of a packet: addresses, protocol, ports. Rewriting adjusts checksums by what
//! changed (RFC 1624), so that a packet that came damaged stays damaged. Fragments and IPv6 extension headers are not
//! read: nothing in the bed sends them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ethernet's number for IPv4.
pub(super) const IPV4: u16 = 0x0800;
/// Ethernet's number for ARP.
pub(super) const ARP: u16 = 0x0806;
/// Ethernet's number for IPv6.
pub(super) const IPV6: u16 = 0x86dd;

/// IP's number for ICMP.
pub(super) const ICMP: u8 = 1;
/// IP's number for TCP.
pub(super) const TCP: u8 = 6;
/// IP's number for UDP.
pub(super) const UDP: u8 = 17;
/// IP's number for ICMP of IPv6.
pub(super) const ICMP6: u8 = 58;

/// The bytes of an IPv6 header.
pub(super) const V6_HEADER: usize = 40;

/// What a router reads of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// The ports; of an ICMP echo its identifier, twice; else zero.
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    /// Where the header behind IP's begins.
    pub(super) transport: usize,
}

impl Header {
    /// Reads a packet; `None` for what a bed's router does not carry.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let (source, destination, protocol, transport): (IpAddr, IpAddr, u8, usize) = match packet.first()? >> 4 {
            4 => {
                let transport = usize::from(packet[0] & 0xf) * 4;
                let header = packet.get(..20.max(transport))?;
                let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                if transport < 20 || fragment != 0 {
                    return None;
                }
                let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&header[at..at + 4]).expect("four bytes"));
                (address(12).into(), address(16).into(), header[9], transport)
            }
            6 => {
                let header = packet.get(..V6_HEADER)?;
                let address =
                    |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("sixteen bytes"));
                (address(8).into(), address(24).into(), header[6], V6_HEADER)
            }
            _ => return None,
        };
        let word =
            |at: usize| packet.get(transport + at..transport + at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let (source_port, destination_port) = match protocol {
            UDP | TCP => (word(0)?, word(2)?),
            ICMP if matches!(packet.get(transport)?, 0 | 8) => (word(4)?, word(4)?),
            _ => (0, 0),
        };
        Some(Self { source, destination, protocol, source_port, destination_port, transport })
    }

    /// Where the checksum of the header behind IP's stands.
    fn checksum_at(&self) -> Option<usize> {
        let at = match self.protocol {
            TCP => 16,
            UDP => 6,
            ICMP => 2,
            _ => return None,
        };
        Some(self.transport + at)
    }

    /// Gives an IPv4 packet another source.
    pub(super) fn set_source(&mut self, packet: &mut [u8], address: Ipv4Addr, port: u16) {
        self.set_end(packet, 12, 0, address, port);
        (self.source, self.source_port) = (address.into(), port);
    }

    /// Gives an IPv4 packet another destination.
    pub(super) fn set_destination(&mut self, packet: &mut [u8], address: Ipv4Addr, port: u16) {
        self.set_end(packet, 16, 2, address, port);
        (self.destination, self.destination_port) = (address.into(), port);
    }

    fn set_end(&self, packet: &mut [u8], address_at: usize, port_at: usize, address: Ipv4Addr, port: u16) {
        let old = <[u8; 4]>::try_from(&packet[address_at..address_at + 4]).expect("four bytes");
        packet[address_at..address_at + 4].copy_from_slice(&address.octets());
        adjust(packet, 10, &old, &address.octets());
        // ICMP's checksum covers no addresses, and its identifier stands elsewhere.
        let port_at = self.transport + if self.protocol == ICMP { 4 } else { port_at };
        let Some(checksum) = self.checksum_at().filter(|at| packet.len() >= at + 2 && packet.len() >= port_at + 2)
        else {
            return;
        };
        let old_port = [packet[port_at], packet[port_at + 1]];
        packet[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        if self.protocol == UDP && packet[checksum..checksum + 2] == [0, 0] {
            return;
        }
        if self.protocol != ICMP {
            adjust(packet, checksum, &old, &address.octets());
        }
        adjust(packet, checksum, &old_port, &port.to_be_bytes());
    }

    /// Adjusts the checksum of TCP or UDP for addresses that were exchanged for others, of any family.
    pub(super) fn adjust_for_addresses(&self, packet: &mut [u8], old: &[u8], new: &[u8]) {
        if let Some(checksum) = self.checksum_at().filter(|at| packet.len() >= at + 2) {
            adjust(packet, checksum, old, new);
        }
    }
}

/// What a network does to the two bits of explicit congestion notification (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Leaves them.
    #[default]
    Keep,
    /// Sets every packet to this codepoint: 0 not capable, 1 ECT(1), 2 ECT(0), 3 congestion experienced.
    Set(u8),
}

impl Ecn {
    pub(super) fn apply(self, packet: &mut [u8]) {
        let Self::Set(codepoint) = self else { return };
        let bits = codepoint & 3;
        match packet[0] >> 4 {
            4 => {
                let old = [packet[0], packet[1]];
                packet[1] = packet[1] & !3 | bits;
                let new = [packet[0], packet[1]];
                adjust(packet, 10, &old, &new);
            }
            // The traffic class lies across the first two bytes: its lowest bits are the second byte's bits 4 and 5.
            6 => packet[1] = packet[1] & !0x30 | bits << 4,
            _ => {}
        }
    }
}

/// Replaces `old` by `new` in the checksum at `at`; both are whole 16-bit words.
fn adjust(packet: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let checksum = u16::from_be_bytes([packet[at], packet[at + 1]]);
    let mut sum = u32::from(!checksum);
    for word in old.chunks_exact(2) {
        sum += u32::from(!u16::from_be_bytes([word[0], word[1]]));
    }
    for word in new.chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
    }
    packet[at..at + 2].copy_from_slice(&(!fold(sum)).to_be_bytes());
}

/// The internet checksum of several parts, all but the last of even length (RFC 1071).
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
        }
    }
    !fold(sum)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A UDP packet with these ends, which must be of one family; `None` otherwise or if it does not fit.
pub(super) fn udp(
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    destination_port: u16,
    data: &[u8],
) -> Option<Vec<u8>> {
    let length = u16::try_from(8 + data.len()).ok()?;
    let mut datagram = Vec::with_capacity(usize::from(length));
    for word in [source_port, destination_port, length, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.extend_from_slice(data);
    packet(source, destination, UDP, 6, datagram)
}

/// An IP packet around a transport's packet whose checksum, at `checksum_at`, is still zero.
pub(super) fn packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    checksum_at: usize,
    mut inner: Vec<u8>,
) -> Option<Vec<u8>> {
    let length = u16::try_from(inner.len()).ok()?;
    let sum = |addresses: &[u8], inner: &[u8]| {
        let pseudo = [&length.to_be_bytes()[..], &[0, protocol]].concat();
        match checksum(&[addresses, &pseudo, inner]) {
            0 => 0xffff,
            sum => sum,
        }
    };
    let mut packet;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = length.checked_add(20)?;
            packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            let header = checksum(&[&packet]);
            packet[10..12].copy_from_slice(&header.to_be_bytes());
            let sum = sum(&packet[12..20], &inner);
            inner[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 255];
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            let sum = sum(&packet[8..V6_HEADER], &inner);
            inner[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        _ => return None,
    }
    packet.extend_from_slice(&inner);
    Some(packet)
}

/// Whether all checksums of a packet of UDP or TCP are right.
#[cfg(test)]
pub(super) fn is_sound(bytes: &[u8]) -> bool {
    let header = Header::read(bytes).unwrap();
    let addresses = if bytes[0] >> 4 == 4 { &bytes[12..20] } else { &bytes[8..V6_HEADER] };
    let inner = &bytes[header.transport..];
    let pseudo = [&(inner.len() as u16).to_be_bytes()[..], &[0, header.protocol]].concat();
    let ip = bytes[0] >> 4 == 6 || checksum(&[&bytes[..20]]) == 0;
    ip && checksum(&[addresses, &pseudo, inner]) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        udp("192.168.1.2".parse().unwrap(), 5_000, "45.10.0.2".parse().unwrap(), 4_433, b"some bytes").unwrap()
    }

    #[test]
    fn a_packet_reads_as_it_was_made() {
        let packet = sample();
        assert!(is_sound(&packet));
        let header = Header::read(&packet).unwrap();
        assert_eq!((header.source_port, header.destination_port, header.transport), (5_000, 4_433, 20));
        assert_eq!(header.destination, "45.10.0.2".parse::<IpAddr>().unwrap());
        let v6 = udp("2a02::2".parse().unwrap(), 1, "2a01::2".parse().unwrap(), 2, b"odd").unwrap();
        assert!(is_sound(&v6));
    }

    #[test]
    fn rewriting_keeps_every_checksum_right() {
        let mut packet = sample();
        let mut header = Header::read(&packet).unwrap();
        header.set_source(&mut packet, Ipv4Addr::new(81, 2, 3, 4), 61_000);
        header.set_destination(&mut packet, Ipv4Addr::new(93, 50, 0, 80), 80);
        for codepoint in 0..4 {
            Ecn::Set(codepoint).apply(&mut packet);
            assert_eq!(packet[1], codepoint);
            assert!(is_sound(&packet));
        }
        assert_eq!(Header::read(&packet), Some(header));
    }

    #[test]
    fn ecn_of_ipv6_lies_in_its_second_byte() {
        let mut packet = udp("2a02::2".parse().unwrap(), 1, "2a01::2".parse().unwrap(), 2, b"").unwrap();
        Ecn::Set(3).apply(&mut packet);
        assert_eq!(packet[..2], [0x60, 0x30]);
    }

    #[test]
    fn what_is_cut_short_or_a_fragment_is_not_read() {
        let mut packet = sample();
        assert_eq!(Header::read(&packet[..22]), None);
        assert_eq!(Header::read(&[]), None);
        packet[6] = 0x20;
        assert_eq!(Header::read(&packet), None);
    }
}
