//! Moves bytes between a flow and a TCP connection until both ends are done.
//!
//! Inbounds (an application's connection) and the relay's egress (the target's) run the same pump. It keeps TCP's endings
//! apart: a finished half is finished on the other side after its last byte, a reset on either side resets the other at
//! once (as in TCP, a reset overtakes data), and a flow whose session ended resets the TCP side, so that nobody takes a
//! torn transfer for a whole one.
//!
//! Back-pressure is the absence of reads: a side is read only while the other takes what was read. Nothing is allocated
//! per read: TCP is read into pooled buffers that an idle connection does not hold, and a flow's chunks go to TCP as they
//! are, many per system call.

mod buffer;
mod gauge;
pub mod memory;
mod tcp;
#[cfg(test)]
mod tests;

pub use gauge::{CountedFlow, FlowGauge};

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};

use self::buffer::ReadBuffer;
use crate::dial::{Flow, FlowEnd, FlowRecv, FlowSend};

/// Chunks of a flow that one system call hands to TCP at most.
const CHUNKS_PER_WRITE: usize = 64;
/// Bytes of a flow that wait for TCP at most before the flow is no longer read.
const BYTES_PER_WRITE: usize = 256 * 1024;
/// Rounds of one direction before the other one, and other tasks, get their turn.
const ROUNDS_PER_TURN: usize = 8;

/// A TCP connection as the pump needs it: `tokio::net::TcpStream`, or [`memory::MemoryTcp`] in virtual time.
///
/// Dropping it closes it; dropping it after [`TcpLike::reset_on_drop`] resets it.
pub trait TcpLike: Send + Sync + Unpin {
    /// Becomes ready when [`TcpLike::try_read`] may have something to say.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Reads what is there; 0 at the peer's clean end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; anything else ends the connection.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Becomes ready when [`TcpLike::try_write`] may take something.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Writes as much as fits and says how many bytes that was.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits; anything else ends the connection.
    fn try_write(&self, chunks: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Sends FIN after what was written.
    ///
    /// # Errors
    /// When the connection is gone already.
    fn finish(&self) -> io::Result<()>;
    /// Makes dropping the connection reset it rather than close it; `false` takes that back.
    fn reset_on_drop(&self, reset: bool);
    /// Resolves when the peer has reset the connection, read or not.
    fn peer_reset(&self) -> impl Future<Output = ()> + Send;
}

/// What a pump moved, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PumpStats {
    /// Bytes read from TCP and taken by the flow.
    pub to_flow_bytes: u64,
    /// Bytes of the flow taken by TCP.
    pub to_tcp_bytes: u64,
    /// How it ended.
    pub end: PumpEnd,
}

/// How a pump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpEnd {
    /// Both halves finished, and the far side has received everything.
    Finished,
    /// The TCP peer reset its connection or it broke; the flow was reset.
    TcpReset,
    /// The far side reset the flow; the TCP connection was reset.
    FlowReset,
    /// The session ended under the flow; the TCP connection was reset.
    FlowLost,
}

impl From<FlowEnd> for PumpEnd {
    fn from(end: FlowEnd) -> Self {
        match end {
            FlowEnd::Reset => PumpEnd::FlowReset,
            FlowEnd::Lost => PumpEnd::FlowLost,
        }
    }
}

/// Moves bytes both ways until both halves are finished and received, or either side resets.
///
/// # Cancel safety
/// Dropping the future, polled or not, resets both sides.
pub fn pump(flow: Flow, tcp: impl TcpLike) -> impl Future<Output = PumpStats> + Send {
    pump_counted(flow, tcp, None)
}

/// The same for a flow that a [`FlowGauge`] counts.
///
/// # Cancel safety
/// Dropping the future, polled or not, resets both sides.
pub fn pump_counted(
    flow: Flow,
    tcp: impl TcpLike,
    counted: impl Into<Option<CountedFlow>>,
) -> impl Future<Output = PumpStats> + Send {
    pump_after(flow, tcp, counted, Early::default())
}

/// The same for connections on which something was read ahead.
///
/// # Cancel safety
/// Dropping the future, polled or not, resets both sides.
pub fn pump_after(
    flow: Flow,
    tcp: impl TcpLike,
    counted: impl Into<Option<CountedFlow>>,
    early: Early,
) -> impl Future<Output = PumpStats> + Send {
    // Until everything has gone well, whatever ends the pump must not look like a clean close.
    tcp.reset_on_drop(true);
    run(flow, tcp, counted.into(), early)
}

/// What was read of either side before the pump began, and goes to the other side first.
#[derive(Debug, Default)]
pub struct Early {
    /// Bytes of the TCP connection.
    pub to_flow: Bytes,
    /// Bytes of the flow.
    pub to_tcp: Bytes,
}

async fn run(flow: Flow, tcp: impl TcpLike, mut counted: Option<CountedFlow>, early: Early) -> PumpStats {
    let mut up = ToFlow::new(flow.send, early.to_flow);
    let mut down = ToTcp::new(flow.recv, early.to_tcp);
    let outcome = {
        let mut peer_reset = pin!(tcp.peer_reset());
        poll_fn(|cx| {
            if peer_reset.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(PumpEnd::TcpReset));
            }
            let up = up.poll(&tcp, cx)?;
            let down = down.poll(&tcp, cx)?;
            if (up.is_ready() || down.is_ready())
                && let Some(counted) = &mut counted
            {
                counted.set_finishing(true);
            }
            if up.is_ready() && down.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    };
    let end = match outcome {
        Ok(()) => {
            // Both FINs are exchanged on this side; its descriptor need not wait for the far side's last acknowledgement.
            tcp.reset_on_drop(false);
            drop(tcp);
            match poll_fn(|cx| up.flow.poll_stopped(cx)).await {
                Ok(()) => PumpEnd::Finished,
                Err(end) => end.into(),
            }
        }
        Err(end) => {
            up.flow.reset();
            down.flow.stop();
            end
        }
    };
    PumpStats { to_flow_bytes: up.bytes, to_tcp_bytes: down.bytes, end }
}

/// The direction from TCP to the flow.
struct ToFlow {
    flow: Box<dyn FlowSend>,
    /// What was read before the pump began and not yet taken by the flow.
    early: Bytes,
    /// What was read and not yet taken by the flow.
    pending: Option<ReadBuffer>,
    bytes: u64,
    finished: bool,
}

impl ToFlow {
    fn new(flow: Box<dyn FlowSend>, early: Bytes) -> Self {
        Self { flow, early, pending: None, bytes: 0, finished: false }
    }

    fn poll(&mut self, tcp: &impl TcpLike, cx: &mut Context<'_>) -> Result<Poll<()>, PumpEnd> {
        if self.finished {
            return Ok(Poll::Ready(()));
        }
        if let Poll::Ready(Err(end)) = self.flow.poll_stopped(cx) {
            return Err(end.into());
        }
        for _ in 0..ROUNDS_PER_TURN {
            if self.poll_flush(cx)?.is_pending() {
                return Ok(Poll::Pending);
            }
            match poll_read(tcp, cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(None)) => {
                    self.flow.finish();
                    self.finished = true;
                    return Ok(Poll::Ready(()));
                }
                Poll::Ready(Ok(read)) => self.pending = read,
                Poll::Ready(Err(_)) => return Err(PumpEnd::TcpReset),
            }
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Hands what was read to the flow; `Ready` when nothing is left.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, PumpEnd> {
        while !self.early.is_empty() {
            match self.flow.poll_write(cx, &self.early) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Err(end)) => return Err(end.into()),
                Poll::Ready(Ok(taken)) => {
                    self.bytes += taken as u64;
                    self.early.advance(taken);
                }
            }
        }
        while let Some(pending) = &mut self.pending {
            match self.flow.poll_write(cx, pending.unread()) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Err(end)) => return Err(end.into()),
                Poll::Ready(Ok(taken)) => {
                    self.bytes += taken as u64;
                    pending.advance(taken);
                    if pending.unread().is_empty() {
                        self.pending = None;
                    }
                }
            }
        }
        Ok(Poll::Ready(()))
    }
}

/// Reads what TCP has into a buffer from the pool; `None` at the clean end.
fn poll_read(tcp: &impl TcpLike, cx: &mut Context<'_>) -> Poll<io::Result<Option<ReadBuffer>>> {
    loop {
        ready!(tcp.poll_readable(cx))?;
        let mut buffer = ReadBuffer::take();
        match tcp.try_read(buffer.space()) {
            Ok(0) => return Poll::Ready(Ok(None)),
            Ok(length) => {
                buffer.fill(length);
                return Poll::Ready(Ok(Some(buffer)));
            }
            Err(error) if retry(&error) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// The direction from the flow to TCP.
struct ToTcp {
    flow: Box<dyn FlowRecv>,
    /// Chunks that TCP has not taken yet, oldest first.
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    bytes: u64,
    /// The flow has ended cleanly; FIN follows the last waiting chunk.
    ended: bool,
    finished: bool,
}

impl ToTcp {
    fn new(flow: Box<dyn FlowRecv>, early: Bytes) -> Self {
        let waiting_bytes = early.len();
        let waiting = if early.is_empty() { VecDeque::new() } else { VecDeque::from([early]) };
        Self { flow, waiting, waiting_bytes, bytes: 0, ended: false, finished: false }
    }

    fn poll(&mut self, tcp: &impl TcpLike, cx: &mut Context<'_>) -> Result<Poll<()>, PumpEnd> {
        if self.finished {
            return Ok(Poll::Ready(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            self.gather(cx)?;
            if self.waiting.is_empty() {
                if !self.ended {
                    return Ok(Poll::Pending);
                }
                tcp.finish().map_err(|_| PumpEnd::TcpReset)?;
                self.finished = true;
                return Ok(Poll::Ready(()));
            }
            match self.poll_write(tcp, cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Err(PumpEnd::TcpReset),
            }
        }
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Takes chunks from the flow, as many as one write can carry.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), PumpEnd> {
        while !self.ended && self.waiting.len() < CHUNKS_PER_WRITE && self.waiting_bytes < BYTES_PER_WRITE {
            match self.flow.poll_chunk(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(None)) => self.ended = true,
                Poll::Ready(Ok(Some(chunk))) if chunk.is_empty() => {}
                Poll::Ready(Ok(Some(chunk))) => {
                    self.waiting_bytes += chunk.len();
                    self.waiting.push_back(chunk);
                }
                Poll::Ready(Err(end)) => return Err(end.into()),
            }
        }
        Ok(())
    }

    fn poll_write(&mut self, tcp: &impl TcpLike, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(tcp.poll_writable(cx))?;
            let mut slices = [IoSlice::new(&[]); CHUNKS_PER_WRITE];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(&self.waiting) {
                *slice = IoSlice::new(chunk);
                count += 1;
            }
            match tcp.try_write(&slices[..count]) {
                Ok(taken) => {
                    self.consume(taken);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if retry(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn consume(&mut self, mut taken: usize) {
        self.bytes += taken as u64;
        self.waiting_bytes -= taken;
        while let Some(first) = self.waiting.front_mut() {
            if taken < first.len() {
                first.advance(taken);
                return;
            }
            taken -= first.len();
            self.waiting.pop_front();
        }
    }
}

fn retry(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
