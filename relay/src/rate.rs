//! How fast a device's flows may go: the TCP side of each moves bytes in turns that [`tandem_proto::turns`] gives out.
//!
//! A device is one token, with all its sessions; each direction has the rate to itself. A side that has to wait is not read
//! or written, which its peer and the client notice as they would a slow network. Without a rate nothing is in the way.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tandem_core::pump::TcpLike;
use tandem_proto::turns::{TURN, Turns};
use tokio::time::{Instant, Sleep, sleep_until};

/// The turns of one device, in each direction.
#[derive(Debug)]
pub(crate) struct DeviceRate {
    from_targets: Mutex<Turns>,
    to_targets: Mutex<Turns>,
}

impl DeviceRate {
    /// With so many bytes a second each way.
    pub(crate) fn new(bytes_per_second: f64) -> Arc<Self> {
        let turns = || Mutex::new(Turns::new(bytes_per_second, Instant::now().into_std()));
        Arc::new(Self { from_targets: turns(), to_targets: turns() })
    }
}

/// A connection to a target that keeps to its device's rate, if that has one.
pub(crate) struct Limited<T> {
    tcp: T,
    rate: Option<Arc<DeviceRate>>,
    reading: Mutex<Turn>,
    writing: Mutex<Turn>,
}

/// What a direction may move now, and when.
#[derive(Default)]
struct Turn {
    left: usize,
    comes: Option<Pin<Box<Sleep>>>,
}

impl Turn {
    /// Ready when something may be moved.
    fn poll(&mut self, turns: &Mutex<Turns>, cx: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            let now = Instant::now();
            let comes = Instant::from_std(turns.lock().book(now.into_std()));
            self.left = TURN;
            match &mut self.comes {
                _ if comes <= now => self.comes = None,
                Some(sleep) => sleep.as_mut().reset(comes),
                none => *none = Some(Box::pin(sleep_until(comes))),
            }
        }
        match &mut self.comes {
            Some(sleep) if !sleep.is_elapsed() => sleep.as_mut().poll(cx),
            _ => Poll::Ready(()),
        }
    }

    fn give_back(&mut self, turns: &Mutex<Turns>) {
        turns.lock().give_back(std::mem::take(&mut self.left));
    }
}

impl<T> Limited<T> {
    pub(crate) fn new(tcp: T, rate: Option<Arc<DeviceRate>>) -> Self {
        Self { tcp, rate, reading: Mutex::default(), writing: Mutex::default() }
    }
}

impl<T: TcpLike> TcpLike for Limited<T> {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // In this order, so that who has nothing to move books nothing.
        ready!(self.tcp.poll_readable(cx))?;
        match &self.rate {
            Some(rate) => self.reading.lock().poll(&rate.from_targets, cx).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rate.is_none() {
            return self.tcp.try_read(buffer);
        }
        let mut turn = self.reading.lock();
        if turn.left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = buffer.len().min(turn.left);
        let read = self.tcp.try_read(&mut buffer[..most])?;
        turn.left -= read;
        Ok(read)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.tcp.poll_writable(cx))?;
        match &self.rate {
            Some(rate) => self.writing.lock().poll(&rate.to_targets, cx).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }

    fn try_write(&self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.rate.is_none() {
            return self.tcp.try_write(chunks);
        }
        let mut turn = self.writing.lock();
        if turn.left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut room = turn.left;
        let whole = chunks.iter().take_while(|chunk| {
            let fits = chunk.len() <= room;
            room -= if fits { chunk.len() } else { 0 };
            fits
        });
        let written = match (whole.count(), chunks.first()) {
            (0, Some(first)) => self.tcp.try_write(&[IoSlice::new(&first[..turn.left])])?,
            (whole, _) => self.tcp.try_write(&chunks[..whole])?,
        };
        turn.left -= written;
        Ok(written)
    }

    fn finish(&self) -> io::Result<()> {
        self.tcp.finish()
    }

    fn reset_on_drop(&self, reset: bool) {
        self.tcp.reset_on_drop(reset);
    }

    fn peer_reset(&self) -> impl Future<Output = ()> + Send {
        self.tcp.peer_reset()
    }
}

impl<T> Drop for Limited<T> {
    fn drop(&mut self) {
        if let Some(rate) = &self.rate {
            self.reading.get_mut().give_back(&rate.from_targets);
            self.writing.get_mut().give_back(&rate.to_targets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tandem_core::dial::memory::pair as flow_pair;
    use tandem_core::pump::memory::{MemoryTcp, pair as tcp_pair};
    use tandem_core::pump::{PumpEnd, pump};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MB: usize = 1_000_000;

    /// An application and a target exchange 1 MB each way through two pumps, and say how long it took.
    async fn exchange(rate: Option<Arc<DeviceRate>>) -> Duration {
        let (app, inbound) = tcp_pair(64 * 1_024);
        let (egress, target) = tcp_pair(64 * 1_024);
        let (near, far, _line) = flow_pair(64 * 1_024);
        let talk = async |tcp: MemoryTcp, byte: u8| {
            let (mut read, mut write) = tokio::io::split(tcp);
            let mut got = Vec::new();
            let sent = vec![byte; MB];
            let send = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            tokio::join!(send, async { read.read_to_end(&mut got).await.unwrap() });
            assert!(got.len() == MB && got.iter().all(|got| *got != byte));
        };
        let began = Instant::now();
        let pumps = async { tokio::join!(pump(near, inbound), pump(far, Limited::new(egress, rate))) };
        let ((near, far), (), ()) = tokio::join!(pumps, talk(app, 1), talk(target, 2));
        assert_eq!((near.end, far.end), (PumpEnd::Finished, PumpEnd::Finished));
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn flows_of_a_device_share_its_rate_each_way_and_get_alike() {
        let rate = Some(DeviceRate::new(MB as f64));
        let (one, other, free) = tokio::join!(exchange(rate.clone()), exchange(rate.clone()), exchange(None));
        assert_eq!(free, Duration::ZERO, "a device without a rate does not wait");
        for took in [one, other] {
            assert!(
                (1.8..2.1).contains(&took.as_secs_f64()),
                "2 MB each way at 1 MB/s, and each flow its half: {took:?}"
            );
        }
        let again = exchange(rate).await;
        assert!((0.85..1.05).contains(&again.as_secs_f64()), "what ended flows had booked is given back: {again:?}");
    }
}
