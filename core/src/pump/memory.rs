//! TCP connections in memory, for runs in virtual time.
//!
//! [`pair`] makes the two ends of one connection. It has a bounded window, half-close and reset like the kernel's, no delay
//! and no loss. An end is a [`TcpLike`] for the pump and `AsyncRead + AsyncWrite` for the application in a
//! test.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::TcpLike;

/// Makes a connection whose directions hold `window_bytes` each.
pub fn pair(window_bytes: usize) -> (MemoryTcp, MemoryTcp) {
    let left = Arc::new(Mutex::new(Direction::default()));
    let right = Arc::new(Mutex::new(Direction::default()));
    let end = |outgoing: &Arc<_>, incoming: &Arc<_>| MemoryTcp {
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
        window_bytes,
        reset_on_drop: AtomicBool::new(false),
    };
    (end(&left, &right), end(&right, &left))
}

/// One end of a TCP connection in memory.
#[derive(Debug)]
pub struct MemoryTcp {
    outgoing: Arc<Mutex<Direction>>,
    incoming: Arc<Mutex<Direction>>,
    window_bytes: usize,
    reset_on_drop: AtomicBool,
}

/// The bytes under way in one direction.
#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    finished: bool,
    reset: bool,
    /// The reading end is gone.
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    watcher: Option<Waker>,
}

impl Direction {
    fn wake_all(&mut self) {
        for waker in [&mut self.reader, &mut self.writer, &mut self.watcher] {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }

    fn wake(waker: &mut Option<Waker>) {
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }
}

fn was_reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl MemoryTcp {
    /// Resets the connection: both ends fail from now on and what is under way is lost.
    pub fn reset(self) {
        self.reset_on_drop(true);
    }
}

impl TcpLike for MemoryTcp {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut incoming = self.incoming.lock();
        if incoming.reset || incoming.finished || !incoming.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        incoming.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        if incoming.reset {
            return Err(was_reset());
        }
        if incoming.bytes.is_empty() {
            return if incoming.finished { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let length = buffer.len().min(incoming.bytes.len());
        for (place, byte) in buffer.iter_mut().zip(incoming.bytes.drain(..length)) {
            *place = byte;
        }
        Direction::wake(&mut incoming.writer);
        Ok(length)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.reset || outgoing.unread || outgoing.bytes.len() < self.window_bytes {
            return Poll::Ready(Ok(()));
        }
        outgoing.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_write(&self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.reset || outgoing.unread || outgoing.finished {
            return Err(was_reset());
        }
        let mut taken = 0;
        for chunk in chunks {
            let length = chunk.len().min(self.window_bytes - outgoing.bytes.len());
            outgoing.bytes.extend(&chunk[..length]);
            taken += length;
        }
        if taken == 0 && chunks.iter().any(|chunk| !chunk.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Direction::wake(&mut outgoing.reader);
        Ok(taken)
    }

    fn finish(&self) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        if outgoing.reset {
            return Err(was_reset());
        }
        outgoing.finished = true;
        Direction::wake(&mut outgoing.reader);
        Ok(())
    }

    fn reset_on_drop(&self, reset: bool) {
        self.reset_on_drop.store(reset, Ordering::Relaxed);
    }

    async fn peer_reset(&self) {
        poll_fn(|cx| {
            let mut incoming = self.incoming.lock();
            if incoming.reset {
                return Poll::Ready(());
            }
            incoming.watcher = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for MemoryTcp {
    fn drop(&mut self) {
        let unread = !self.incoming.lock().bytes.is_empty();
        // As in the kernel, closing with bytes unread resets.
        let reset = self.reset_on_drop.load(Ordering::Relaxed) || unread;
        for (direction, outgoing) in [(&self.outgoing, true), (&self.incoming, false)] {
            let mut direction = direction.lock();
            direction.reset |= reset;
            direction.finished |= outgoing;
            direction.unread |= !outgoing;
            direction.wake_all();
        }
    }
}

impl AsyncRead for MemoryTcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_readable(cx))?;
        let length = self.try_read(buffer.initialize_unfilled())?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MemoryTcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_writable(cx))?;
        Poll::Ready(self.try_write(&[IoSlice::new(data)]))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish())
    }
}
