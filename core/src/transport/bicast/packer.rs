//! Packs datagrams into quinn's receive buffers, several of one length into one, as receive offload does.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::SocketAddr;

use quinn::udp::RecvMeta;

/// Buffers kept for later overflow.
const MOST_SPARE: usize = 256;

/// Datagrams for which quinn had no room; they go first next time.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    queue: VecDeque<(SocketAddr, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// The buffers of one receive call, being filled.
pub(super) struct Packer<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    meta: &'a mut [RecvMeta],
    overflow: &'a mut Overflow,
    /// Buffers that hold something; the last may take more.
    used: usize,
    /// The last buffer takes no more: its last datagram was shorter than the others.
    closed: bool,
}

impl<'a, 'b> Packer<'a, 'b> {
    pub(super) fn new(bufs: &'a mut [IoSliceMut<'b>], meta: &'a mut [RecvMeta], overflow: &'a mut Overflow) -> Self {
        let mut packer = Self { bufs, meta, overflow, used: 0, closed: false };
        while let Some((address, datagram)) = packer.overflow.queue.pop_front() {
            if !packer.fits(address, &datagram) {
                packer.overflow.queue.push_front((address, datagram));
                break;
            }
            if packer.overflow.spare.len() < MOST_SPARE {
                packer.overflow.spare.push(datagram);
            }
        }
        packer
    }

    /// How many buffers are filled.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether the next datagram would overflow.
    pub(super) fn is_full(&self) -> bool {
        !self.overflow.queue.is_empty() || self.used >= self.bufs.len().min(self.meta.len())
    }

    /// Adds a datagram for the session that QUIC knows under `address`.
    pub(super) fn push(&mut self, address: SocketAddr, datagram: &[u8]) {
        if self.overflow.queue.is_empty() && self.fits(address, datagram) {
            return;
        }
        let mut buffer = self.overflow.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(datagram);
        self.overflow.queue.push_back((address, buffer));
    }

    fn fits(&mut self, address: SocketAddr, datagram: &[u8]) -> bool {
        if self.used > 0 && !self.closed {
            let (buf, meta) = (&mut self.bufs[self.used - 1], &mut self.meta[self.used - 1]);
            let alike = meta.addr == address && datagram.len() <= meta.stride;
            if alike && meta.len + datagram.len() <= buf.len() {
                buf[meta.len..meta.len + datagram.len()].copy_from_slice(datagram);
                meta.len += datagram.len();
                self.closed = datagram.len() < meta.stride;
                return true;
            }
        }
        let index = self.used;
        if index >= self.bufs.len().min(self.meta.len()) || datagram.len() > self.bufs[index].len() {
            // Longer than any datagram that QUIC agreed to take: as good as full.
            return index < self.bufs.len().min(self.meta.len());
        }
        self.bufs[index][..datagram.len()].copy_from_slice(datagram);
        let mut meta = RecvMeta::default();
        (meta.addr, meta.len, meta.stride) = (address, datagram.len(), datagram.len());
        self.meta[index] = meta;
        self.used += 1;
        self.closed = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(bufs: &[Vec<u8>], meta: &[RecvMeta]) -> Vec<Vec<u8>> {
        bufs.iter()
            .zip(meta)
            .flat_map(|(buf, meta)| buf[..meta.len].chunks(meta.stride).map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn datagrams_come_out_in_order_whatever_their_lengths_and_what_overflows_comes_next() {
        let address: SocketAddr = ([192, 0, 2, 1], 1).into();
        let datagrams: Vec<Vec<u8>> =
            [30, 30, 30, 20, 20, 30, 40, 40, 10, 30].iter().zip(0..).map(|(len, fill)| vec![fill; *len]).collect();
        let (mut overflow, mut got) = (Overflow::default(), Vec::new());
        let mut first = true;
        loop {
            let (mut storage, mut meta) = (vec![vec![0; 70]; 3], vec![RecvMeta::default(); 3]);
            let used = {
                let mut bufs: Vec<_> = storage.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
                let mut packer = Packer::new(&mut bufs, &mut meta, &mut overflow);
                if std::mem::take(&mut first) {
                    datagrams.iter().for_each(|datagram| packer.push(address, datagram));
                }
                packer.used()
            };
            if used == 0 {
                break;
            }
            got.extend(unpack(&storage[..used], &meta[..used]));
        }
        assert_eq!(got, datagrams);
    }
}
