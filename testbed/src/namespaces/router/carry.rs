//! What the router does with each packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use tandem_netem::Direction;

use super::{Access, Internet, State};
use crate::namespaces::dns::{self, Names, Server};
use crate::namespaces::frame::Frame;
use crate::namespaces::nat::{Inside, Nat, Outside};
use crate::namespaces::nat64;
use crate::namespaces::neighbour::{answer_arp, answer_solicitation};
use crate::namespaces::packet::{ARP, Header, ICMP6, IPV4, IPV6, TCP, UDP, udp};

/// The router's own link-layer address, on every network.
const ROUTER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// The most frames read from one device before the others have their turn.
const BATCH: usize = 64;
/// The most IPv6 addresses remembered of a network's hosts.
const MOST_HOSTS: usize = 16;
/// The port of a name server.
const DNS: u16 = 53;
/// The port that a captive network leads to its login page.
const HTTP: u16 = 80;

impl State {
    /// Takes in what devices have and delivers what is due. `ready` says which devices have something: the networks in
    /// their order, then the internet.
    pub(super) fn turn(&mut self, ready: &[bool]) {
        let now = Instant::now();
        for (index, access) in self.accesses.iter_mut().enumerate() {
            if access.next_rebind.is_some_and(|next| next <= now) {
                self.nat.rebind(index);
                access.next_rebind = access.behaviour.rebind_every.map(|every| now + every);
            }
        }
        let (internet_ready, accesses_ready) = ready.split_last().unwrap_or((&false, &[]));
        for index in (0..self.accesses.len()).filter(|index| accesses_ready.get(*index) == Some(&true)) {
            for _ in 0..BATCH {
                let access = &mut self.accesses[index];
                let Some(frame) = access.tap.receive() else { break };
                if let Some((frame, protocol)) = access.enter(frame) {
                    self.enqueue(Direction::Up, index, frame, protocol, now);
                }
            }
        }
        for _ in 0..if *internet_ready { BATCH } else { 0 } {
            let Some(frame) = self.internet.tap.receive() else { break };
            self.take_from_internet(frame, now);
        }
        for index in 0..self.accesses.len() {
            while let Some(frame) = self.accesses[index].up.poll(now) {
                if let Some(home) = self.copies.arrive(Direction::Up, index, &frame) {
                    self.accesses[home].leave(home, frame, &self.internet, &mut self.nat, &self.names, now);
                }
            }
            while let Some(frame) = self.accesses[index].down.poll(now) {
                if let Some(home) = self.copies.arrive(Direction::Down, index, &frame) {
                    send(&self.accesses[home].tap, self.accesses[home].host, frame);
                }
            }
        }
    }

    /// Puts a frame of a network on its link, and on those of all others if such packets are copied.
    fn enqueue(&mut self, direction: Direction, home: usize, mut frame: Frame, protocol: u8, now: Instant) {
        if protocol == TCP && self.copies.mark(direction, home, &mut frame) {
            for (index, access) in self.accesses.iter_mut().enumerate() {
                if index != home {
                    access.link(direction).enqueue(now, frame.clone());
                }
            }
        }
        self.accesses[home].link(direction).enqueue(now, frame);
    }

    /// When the next packet is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let timeouts = |access: &Access| [access.up.poll_timeout(), access.down.poll_timeout(), access.next_rebind];
        self.accesses.iter().flat_map(timeouts).flatten().min()
    }

    /// A frame that the relay's host has sent: to the network it is meant for.
    fn take_from_internet(&mut self, mut frame: Frame, now: Instant) {
        if let Some(answer) = self.internet.gateways.into_iter().find_map(|gateway| introduce(&frame, gateway)) {
            self.internet.tap.send(&answer);
            return;
        }
        let Some(mut header) = Header::read(frame.packet()) else { return };
        let index = match header.destination {
            IpAddr::V4(address) => {
                let outside = Outside { protocol: header.protocol, address, port: header.destination_port };
                let timeout = |network: usize| self.accesses[network].behaviour.udp_timeout;
                let IpAddr::V4(source) = header.source else { return };
                let peer = (source, header.source_port);
                let Some((inside, redirected)) = self.nat.inbound(outside, peer, timeout, now) else { return };
                let packet = frame.packet_mut();
                if let Some((address, port)) = redirected {
                    header.set_source(packet, address, port);
                }
                match inside.address {
                    IpAddr::V4(address) => header.set_destination(packet, address, inside.port),
                    IpAddr::V6(host) => {
                        header.set_destination(packet, address, inside.port);
                        let IpAddr::V4(source) = header.source else { return };
                        if !nat64::to_v6(&mut frame, nat64::synthesized(source), host) {
                            return;
                        }
                    }
                }
                inside.network
            }
            IpAddr::V6(address) => {
                let knows = |access: &Access| access.hosts_v6.contains(&address) && !access.behaviour.dead_v6;
                let Some(index) = self.accesses.iter().position(knows) else { return };
                index
            }
        };
        let access = &mut self.accesses[index];
        access.behaviour.ecn_down.apply(frame.packet_mut());
        self.enqueue(Direction::Down, index, frame, header.protocol, now);
    }
}

impl Access {
    /// A frame that the client's host has sent, with its protocol, if it belongs on the link.
    fn enter(&mut self, mut frame: Frame) -> Option<(Frame, u8)> {
        let gateways = [self.behaviour.gateway_v4().map(IpAddr::V4), self.behaviour.gateway_v6().map(IpAddr::V6)];
        if let Some(answer) = gateways.into_iter().flatten().find_map(|gateway| introduce(&frame, gateway)) {
            self.tap.send(&answer);
            return None;
        }
        let header = Header::read(frame.packet())?;
        let belongs = match header.source {
            IpAddr::V4(source) => self.behaviour.v4.is_some_and(|subnet| subnet.contains(&source)),
            IpAddr::V6(source) => {
                // Neighbours and routers are talked about on the link alone.
                if source.is_unicast_link_local() || source.is_unspecified() || header.protocol == ICMP6 {
                    return None;
                }
                self.learn(source)
            }
        };
        if !belongs {
            self.refused.foreign_source += 1;
            return None;
        }
        self.behaviour.ecn_up.apply(frame.packet_mut());
        Some((frame, header.protocol))
    }

    /// Remembers a host of the network; returns whether it can be one.
    fn learn(&mut self, host: Ipv6Addr) -> bool {
        if !self.behaviour.v6.is_some_and(|subnet| subnet.contains(&host)) {
            return false;
        }
        if !self.hosts_v6.contains(&host) {
            if self.hosts_v6.len() == MOST_HOSTS {
                self.hosts_v6.remove(0);
            }
            self.hosts_v6.push(host);
        }
        true
    }

    /// A frame that came through the link up: to the name server, or translated into the internet.
    fn leave(&mut self, index: usize, frame: Frame, internet: &Internet, nat: &mut Nat, names: &Names, now: Instant) {
        let Some(header) = Header::read(frame.packet()) else { return };
        let gateway = [self.behaviour.gateway_v4().map(IpAddr::V4), self.behaviour.gateway_v6().map(IpAddr::V6)];
        if gateway.contains(&Some(header.destination)) {
            if let Some(answer) = self.ask(&frame, header, names) {
                self.down.enqueue(now, answer);
            }
            return;
        }
        match self.translate(index, frame, header, nat, now) {
            Some(frame) => send(&internet.tap, internet.host, frame),
            None => self.refused.unroutable += 1,
        }
    }

    /// The name server's answer.
    fn ask(&self, frame: &Frame, header: Header, names: &Names) -> Option<Frame> {
        if (header.protocol, header.destination_port) != (UDP, DNS) {
            return None;
        }
        let server = match self.behaviour.captive {
            Some(portal) => Server::Captive(portal),
            None if self.behaviour.nat64 => Server::Dns64,
            None => Server::Plain,
        };
        let answer = dns::answer(frame.packet().get(header.transport + 8..)?, names, server)?;
        let packet = udp(header.destination, DNS, header.source, header.source_port, &answer)?;
        // A network's MTU holds for its own answers too; names in the bed have few addresses.
        (packet.len() <= 1_500).then(|| Frame::with_packet(&packet))
    }

    /// Gives a packet its outer addresses; `None` if it does not get out.
    fn translate(
        &self,
        index: usize,
        mut frame: Frame,
        mut header: Header,
        nat: &mut Nat,
        now: Instant,
    ) -> Option<Frame> {
        let behaviour = &self.behaviour;
        if behaviour.blocks_udp && header.protocol == UDP {
            return None;
        }
        let inside =
            Inside { network: index, protocol: header.protocol, address: header.source, port: header.source_port };
        let port = header.destination_port;
        let outer = |nat: &mut Nat, peer: Ipv4Addr, redirected: Option<(Ipv4Addr, u16)>| {
            let peer = (peer, port);
            nat.outbound(inside, behaviour.public, peer, behaviour.udp_timeout, redirected, now)
        };
        match header.destination {
            IpAddr::V4(destination) => {
                let (mut peer, mut redirected) = (destination, None);
                if let Some(portal) = behaviour.captive {
                    if (header.protocol, header.destination_port) != (TCP, HTTP) {
                        return None;
                    }
                    (peer, redirected) = (portal, Some((destination, HTTP)));
                    header.set_destination(frame.packet_mut(), portal, HTTP);
                }
                let outside = outer(nat, peer, redirected);
                header.set_source(frame.packet_mut(), outside.address, outside.port);
            }
            IpAddr::V6(_) if behaviour.dead_v6 || behaviour.captive.is_some() => return None,
            IpAddr::V6(destination) => {
                if let Some(destination) = nat64::meant(destination) {
                    if !behaviour.nat64 || !nat64::to_v4(&mut frame, behaviour.public, destination) {
                        return None;
                    }
                    let outside = outer(nat, destination, None);
                    let mut header = Header::read(frame.packet())?;
                    header.set_source(frame.packet_mut(), outside.address, outside.port);
                }
            }
        }
        Some(frame)
    }
}

/// The answer to a host that asks for its gateway's link-layer address.
fn introduce(frame: &Frame, gateway: IpAddr) -> Option<Frame> {
    match (frame.ether_type(), gateway) {
        (ARP, IpAddr::V4(gateway)) => answer_arp(frame, gateway, ROUTER),
        (IPV6, IpAddr::V6(gateway)) => answer_solicitation(frame, gateway, ROUTER),
        _ => None,
    }
}

fn send(tap: &crate::namespaces::tap::Tap, to: [u8; 6], mut frame: Frame) {
    let ether_type = if frame.packet()[0] >> 4 == 4 { IPV4 } else { IPV6 };
    frame.address(to, ROUTER, ether_type);
    // A device that is down takes nothing, like a host that has gone.
    tap.send(&frame);
}
