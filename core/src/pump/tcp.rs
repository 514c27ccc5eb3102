//! The kernel's TCP connections as the pump sees them.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::TcpLike;

impl TcpLike for TcpStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, buffer)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    fn try_write(&self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(chunks)
    }

    fn finish(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    fn reset_on_drop(&self, reset: bool) {
        // A zero linger makes close() send RST and drop what is unsent. It fails only on a socket that is gone already.
        let _ = SockRef::from(self).set_linger(reset.then_some(Duration::ZERO));
    }

    async fn peer_reset(&self) {
        // The kernel reports an error condition for RST (and for timeouts) even while nobody reads or writes.
        let _ = self.ready(Interest::ERROR).await;
    }
}
