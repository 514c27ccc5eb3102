//! The buffers in which packets cross the router: taken from a pool, given back when dropped.
//!
//! A frame holds an IP packet with room in front of it for the Ethernet header and for what a translation adds. The pool is
//! the thread's own; it grows to the packets that were ever inside the router at once, and nothing is allocated then.

use std::cell::RefCell;

use tandem_netem::Packet;

use super::router::Mark;

/// The bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// Where a received packet's IP header begins: room for an Ethernet header and the 20 bytes by which IPv6 is longer.
const START: usize = 48;
/// A packet of 1,500 bytes, the room before it, and more, for headers that grow.
const CAPACITY: usize = 1_600;
/// The bytes of an IPv4 and a UDP header, which the link model adds to every payload.
const MODEL_HEADERS: usize = 28;

thread_local! {
    #[expect(clippy::vec_box, reason = "buffers move between pool and frames by pointer")]
    static POOL: RefCell<Vec<Box<[u8; CAPACITY]>>> = const { RefCell::new(Vec::new()) };
}

/// A packet on its way through the router.
#[derive(Debug)]
pub(super) struct Frame {
    /// There until dropped.
    buffer: Option<Box<[u8; CAPACITY]>>,
    start: usize,
    end: usize,
    /// What tells copies of one packet; `None`: there are no others.
    pub(super) mark: Option<Mark>,
}

impl Frame {
    /// An empty frame.
    pub(super) fn take() -> Self {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        Self { buffer: Some(pooled.unwrap_or_else(|| Box::new([0; CAPACITY]))), start: START, end: START, mark: None }
    }

    /// A frame with that IP packet, of at most 1,500 bytes.
    pub(super) fn with_packet(packet: &[u8]) -> Self {
        let mut frame = Self::take();
        frame.space()[ETHERNET..ETHERNET + packet.len()].copy_from_slice(packet);
        frame.set_length(ETHERNET + packet.len());
        frame
    }

    /// Where a frame is to be read to, Ethernet header first.
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes_mut()[START - ETHERNET..]
    }

    /// Says how many bytes were read to [`space`](Self::space).
    pub(super) fn set_length(&mut self, bytes: usize) {
        self.start = START;
        self.end = (START - ETHERNET + bytes).clamp(START, CAPACITY);
    }

    /// The frame with its Ethernet header.
    pub(super) fn ethernet(&self) -> &[u8] {
        &self.bytes()[self.start - ETHERNET..self.end]
    }

    pub(super) fn ethernet_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start - ETHERNET, self.end);
        &mut self.bytes_mut()[start..end]
    }

    /// The kind of packet inside, by the Ethernet header.
    pub(super) fn ether_type(&self) -> u16 {
        let ethernet = self.ethernet();
        u16::from_be_bytes([ethernet[12], ethernet[13]])
    }

    /// Writes the Ethernet header.
    pub(super) fn address(&mut self, to: [u8; 6], from: [u8; 6], ether_type: u16) {
        let header = self.ethernet_mut();
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&from);
        header[12..ETHERNET].copy_from_slice(&ether_type.to_be_bytes());
    }

    /// The packet behind the Ethernet header.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes()[self.start..self.end]
    }

    pub(super) fn packet_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        &mut self.bytes_mut()[start..end]
    }

    /// Replaces the first `old` bytes of the packet by `header`.
    pub(super) fn replace_header(&mut self, old: usize, header: &[u8]) {
        let start = self.start + old - header.len();
        self.bytes_mut()[start..start + header.len()].copy_from_slice(header);
        self.start = start;
    }

    fn bytes(&self) -> &[u8; CAPACITY] {
        self.buffer.as_ref().expect("taken only by drop")
    }

    fn bytes_mut(&mut self) -> &mut [u8; CAPACITY] {
        self.buffer.as_mut().expect("taken only by drop")
    }
}

impl Clone for Frame {
    fn clone(&self) -> Self {
        let mut copy = Self::take();
        copy.start = self.start;
        copy.end = self.end;
        copy.mark = self.mark;
        copy.ethernet_mut().copy_from_slice(self.ethernet());
        copy
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            POOL.with_borrow_mut(|pool| pool.push(buffer));
        }
    }
}

impl Packet for Frame {
    fn payload_bytes(&self) -> usize {
        (self.end - self.start).saturating_sub(MODEL_HEADERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_can_grow_and_shrink_in_place() {
        let mut frame = Frame::with_packet(&[&[4; 20][..], b"payload"].concat());
        frame.replace_header(20, &[6; 40]);
        assert_eq!(frame.packet(), [&[6; 40][..], b"payload"].concat());
        frame.replace_header(40, &[4; 20]);
        assert_eq!(frame.packet(), [&[4; 20][..], b"payload"].concat());
    }

    #[test]
    fn a_dropped_frame_is_used_again() {
        let first = Frame::with_packet(b"one");
        let place = first.packet().as_ptr();
        drop(first);
        assert_eq!(Frame::with_packet(b"two").packet().as_ptr(), place);
    }
}
