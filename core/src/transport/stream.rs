//! One bidirectional stream of a session: the control stream, or a flow.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use quinn::{ReadError, VarInt, WriteError};

use super::session::Session;
use crate::dial::{Flow, FlowEnd, FlowRecv, FlowSend};

/// The code with which a flow's halves are reset and stopped; codes carry no meaning yet (`docs/PROTOCOL.md`).
const RESET: VarInt = VarInt::from_u32(0);

/// Most bytes handed on at once.
const LARGEST_CHUNK: usize = 256 * 1024;

/// Both halves of a stream.
#[derive(Debug)]
pub struct Stream {
    /// Towards the other end.
    pub send: SendStream,
    /// From the other end.
    pub recv: RecvStream,
}

impl Stream {
    pub(super) fn new((send, recv): (quinn::SendStream, quinn::RecvStream), session: &Arc<Session>) -> Self {
        session.streams_open.fetch_add(1, Relaxed);
        Self {
            send: SendStream { inner: send, ended: false, stopped: None, session: Arc::clone(session) },
            recv: RecvStream { inner: recv, session: Arc::clone(session) },
        }
    }

    /// The stream as a flow, once its header is exchanged.
    pub fn into_flow(self) -> Flow {
        Flow { send: Box::new(self.send), recv: Box::new(self.recv) }
    }
}

type Stopped = Pin<Box<dyn Future<Output = Result<(), FlowEnd>> + Send>>;

/// The sending half of a stream. Dropped unfinished, it is reset.
pub struct SendStream {
    inner: quinn::SendStream,
    /// Finished or reset.
    ended: bool,
    stopped: Option<Stopped>,
    session: Arc<Session>,
}

impl std::fmt::Debug for SendStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SendStream").field(&self.inner.id()).finish()
    }
}

impl SendStream {
    /// Sends all of `data`.
    ///
    /// # Errors
    /// [`FlowEnd`] if the other end wants no more, or the session ended.
    ///
    /// # Cancel safety
    /// Part of the data may have been sent.
    pub async fn write_all(&mut self, data: &[u8]) -> Result<(), FlowEnd> {
        let mut rest = data;
        while !rest.is_empty() {
            let written = std::future::poll_fn(|cx| self.poll_write(cx, rest)).await?;
            rest = &rest[written..];
        }
        Ok(())
    }
}

impl FlowSend for SendStream {
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, FlowEnd>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, data)).map_err(|error| match error {
            WriteError::ConnectionLost(_) => FlowEnd::Lost,
            _ => FlowEnd::Reset,
        })?;
        self.session.flow_bytes_sent.fetch_add(written as u64, Relaxed);
        Poll::Ready(Ok(written))
    }

    fn finish(&mut self) {
        self.ended = true;
        // Fails only if the half is finished or reset already.
        let _ = self.inner.finish();
    }

    fn reset(&mut self) {
        self.ended = true;
        let _ = self.inner.reset(RESET);
    }

    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowEnd>> {
        let inner = &self.inner;
        let stopped = self.stopped.get_or_insert_with(|| {
            let stopped = inner.stopped();
            Box::pin(async move {
                match stopped.await {
                    Ok(None) => Ok(()),
                    Ok(Some(_)) => Err(FlowEnd::Reset),
                    Err(_) => Err(FlowEnd::Lost),
                }
            })
        });
        let done = ready!(stopped.as_mut().poll(cx));
        self.stopped = Some(Box::pin(std::future::ready(done)));
        Poll::Ready(done)
    }
}

impl Drop for SendStream {
    /// quinn would finish the stream: the other end would take what was torn off for the whole.
    fn drop(&mut self) {
        self.session.streams_open.fetch_sub(1, Relaxed);
        if !self.ended {
            let _ = self.inner.reset(RESET);
        }
    }
}

/// The receiving half of a stream.
pub struct RecvStream {
    inner: quinn::RecvStream,
    session: Arc<Session>,
}

impl std::fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RecvStream").field(&self.inner.id()).finish()
    }
}

impl RecvStream {
    /// Fills `buffer`.
    ///
    /// # Errors
    /// [`FlowEnd::Reset`] also if the stream ends before.
    ///
    /// # Cancel safety
    /// Bytes read so far are lost.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), FlowEnd> {
        self.inner.read_exact(buffer).await.map_err(|error| match error {
            quinn::ReadExactError::ReadError(ReadError::ConnectionLost(_)) => FlowEnd::Lost,
            _ => FlowEnd::Reset,
        })
    }

    /// The next bytes in order; `None` at a clean end.
    ///
    /// # Errors
    /// [`FlowEnd`] if the other end reset the stream, or the session ended.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn read_chunk(&mut self) -> Result<Option<Bytes>, FlowEnd> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }
}

impl FlowRecv for RecvStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, FlowEnd>> {
        let mut read = std::pin::pin!(self.inner.read_chunk(LARGEST_CHUNK, true));
        let chunk = ready!(read.as_mut().poll(cx)).map_err(|error| match error {
            ReadError::ConnectionLost(_) => FlowEnd::Lost,
            _ => FlowEnd::Reset,
        })?;
        let bytes = chunk.map(|chunk| chunk.bytes);
        self.session.flow_bytes_received.fetch_add(bytes.as_ref().map_or(0, Bytes::len) as u64, Relaxed);
        Poll::Ready(Ok(bytes))
    }

    fn stop(&mut self) {
        let _ = self.inner.stop(RESET);
    }
}
