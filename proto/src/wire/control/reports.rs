//! Reports: what arrived and what was sent, on every path, as frames carry it.

use bytes::{Buf, BufMut};
use smallvec::SmallVec;

use super::{ControlError, count, out_of_range, path_id};

/// Most bytes of one path's arrival map: 1,024 numbers.
pub const MAX_MAP_LEN: usize = 128;

/// What arrived on one path; all counters are cumulative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub path: u8,
    /// Framed datagrams that arrived, modulo 2^32.
    pub datagrams: u32,
    /// Their bytes of UDP payload.
    pub bytes: u64,
    /// Low 32 bits of the highest number that arrived.
    pub highest: u32,
    /// Sum of their relative one-way delays, in ticks, modulo 2^64.
    pub delay_sum: u64,
    /// Moving average of the relative one-way delay, in ticks.
    pub delay_average: i32,
    /// Reordering inside the path, in ticks.
    pub reordering: u32,
    /// How far copies on this path arrive behind the first, in ticks.
    pub lag: u32,
    /// Bit `i` (lowest of the first byte first) tells whether number `highest - i` arrived here.
    pub map: SmallVec<[u8; MAX_MAP_LEN]>,
}

/// What one end has sent; all counters are cumulative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentReport {
    /// QUIC datagrams, each counted once.
    pub datagrams: u64,
    /// Copies beyond the first.
    pub copies: u64,
    /// Copies skipped.
    pub copies_skipped: u64,
    /// Copies that arrived where the primary path's did not.
    pub copies_useful: u64,
    /// Bytes of UDP payload of the copies sent.
    pub copy_bytes: u64,
    /// Datagrams whose fate is known on every path they were sent on.
    pub judged: u64,
    /// Those of them of which no copy arrived.
    pub lost: u64,
    /// Per path.
    pub paths: Vec<PathSent>,
}

/// What one end has sent on one path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathSent {
    /// The path.
    pub path: u8,
    /// Framed datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload of everything.
    pub bytes: u64,
    /// Datagrams whose arrival here is known.
    pub judged: u64,
    /// Those of them that did not arrive here.
    pub lost: u64,
    /// Copies that were held back here.
    pub skipped: u64,
    /// Queueing delay, in ticks.
    pub queue: u32,
    /// Loss that is taken for noise, in 1/10,000.
    pub noise: u32,
    /// Bytes per second that copies may go at here; [`UNLIMITED`](super::UNLIMITED) if they may go as fast as the originals.
    pub copy_rate: u32,
    /// Errors of the socket.
    pub send_errors: u32,
}

impl PathReport {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.path);
        out.put_u32(self.datagrams);
        out.put_u64(self.bytes);
        out.put_u32(self.highest);
        out.put_u64(self.delay_sum);
        out.put_i32(self.delay_average);
        out.put_u32(self.reordering);
        out.put_u32(self.lag);
        out.put_u8(self.map.len() as u8);
        out.put_slice(&self.map);
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, ControlError> {
        let mut report = Self {
            path: path_id(bytes.try_get_u8()?)?.0,
            datagrams: bytes.try_get_u32()?,
            bytes: bytes.try_get_u64()?,
            highest: bytes.try_get_u32()?,
            delay_sum: bytes.try_get_u64()?,
            delay_average: bytes.try_get_i32()?,
            reordering: bytes.try_get_u32()?,
            lag: bytes.try_get_u32()?,
            map: SmallVec::new(),
        };
        let len = usize::from(bytes.try_get_u8()?);
        if len > MAX_MAP_LEN {
            return Err(out_of_range("arrival map length", len as u64, MAX_MAP_LEN as u64));
        }
        report.map.resize(len, 0);
        bytes.try_copy_to_slice(&mut report.map)?;
        Ok(report)
    }
}

impl SentReport {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for counter in [
            self.datagrams,
            self.copies,
            self.copies_skipped,
            self.copies_useful,
            self.copy_bytes,
            self.judged,
            self.lost,
        ] {
            out.put_u64(counter);
        }
        out.put_u8(self.paths.len() as u8);
        for path in &self.paths {
            out.put_u8(path.path);
            for counter in [path.datagrams, path.bytes, path.judged, path.lost, path.skipped] {
                out.put_u64(counter);
            }
            out.put_u32(path.queue);
            out.put_u32(path.noise);
            out.put_u32(path.copy_rate);
            out.put_u32(path.send_errors);
        }
    }

    pub(super) fn decode(bytes: &mut &[u8]) -> Result<Self, ControlError> {
        let mut sent = Self {
            datagrams: bytes.try_get_u64()?,
            copies: bytes.try_get_u64()?,
            copies_skipped: bytes.try_get_u64()?,
            copies_useful: bytes.try_get_u64()?,
            copy_bytes: bytes.try_get_u64()?,
            judged: bytes.try_get_u64()?,
            lost: bytes.try_get_u64()?,
            paths: Vec::new(),
        };
        for _ in 0..count(bytes.try_get_u8()?)? {
            sent.paths.push(PathSent {
                path: path_id(bytes.try_get_u8()?)?.0,
                datagrams: bytes.try_get_u64()?,
                bytes: bytes.try_get_u64()?,
                judged: bytes.try_get_u64()?,
                lost: bytes.try_get_u64()?,
                skipped: bytes.try_get_u64()?,
                queue: bytes.try_get_u32()?,
                noise: bytes.try_get_u32()?,
                copy_rate: bytes.try_get_u32()?,
                send_errors: bytes.try_get_u32()?,
            });
        }
        Ok(sent)
    }
}
