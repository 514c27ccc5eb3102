//! What enters and leaves a namespace, as a packet capture sees it: counted, and searched for questions to name servers.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

use super::netns::Namespace;

/// How often a capture looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Room in the kernel for what has not been looked at.
const BUFFER: usize = 8 * 1024 * 1024;
/// DNS, mDNS, LLMNR, DNS over TLS.
const NAME_SERVICES: [u16; 4] = [53, 5353, 5355, 853];

/// A capture on every interface of a namespace, loopback included.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What a capture saw, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// All of them.
    pub packets: u64,
    /// Those of name services, by UDP or TCP, asked or answered.
    pub names: u64,
}

impl Capture {
    /// Begins to capture.
    ///
    /// # Errors
    /// When the kernel opens no packet socket.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        // Without the link layer's header: what is read begins with IP's.
        let open = || Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(all)));
        let mut socket = namespace.enter(open)?.context("opening a packet socket")?;
        socket.set_read_timeout(Some(LOOK)).and_then(|()| socket.set_recv_buffer_size(BUFFER)).context("a capture")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            let mut packet = vec![0; 65_536];
            loop {
                // What has been seen up to the stop is looked at before it counts.
                let last = stopped.load(Ordering::Relaxed);
                match socket.read(&mut packet) {
                    Ok(length) => seen.add(&packet[..length]),
                    Err(_) if last => return seen,
                    Err(_) => {}
                }
            }
        });
        Ok(Self { stop, thread })
    }

    /// Ends it.
    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a capture does not panic")
    }
}

impl Seen {
    fn add(&mut self, packet: &[u8]) {
        self.packets += 1;
        self.names +=
            u64::from(ports(packet).is_some_and(|ports| ports.iter().any(|port| NAME_SERVICES.contains(port))));
    }
}

/// Both ports of a UDP or TCP packet.
fn ports(packet: &[u8]) -> Option<[u16; 2]> {
    let (protocol, start) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    let ports = packet.get(start..start + 4).filter(|_| matches!(protocol, 6 | 17))?;
    Some([u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_to_name_servers_are_told_by_their_ports() {
        let mut v4 = vec![0; 28];
        (v4[0], v4[9]) = (0x45, 17);
        v4[20..24].copy_from_slice(&[0x9c, 0x40, 0, 53]);
        let mut v6 = vec![0; 48];
        (v6[0], v6[6]) = (0x60, 6);
        v6[40..44].copy_from_slice(&[0x03, 0x55, 0x9c, 0x40]);
        let mut other = v4.clone();
        other[23] = 54;
        let mut seen = Seen::default();
        for packet in [&v4[..], &v6, &other, &v4[..20], &[]] {
            seen.add(packet);
        }
        assert_eq!(seen, Seen { packets: 5, names: 2 });
    }
}
