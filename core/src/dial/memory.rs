//! Flows in memory, for tests without a session: what one end sends the other receives.
//!
//! A [`pair`] behaves like a flow over a session: bounded window, clean end, reset, stop, and [`FlowEnd::Lost`] on both
//! ends after [`Line::cut`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Flow, FlowEnd, FlowRecv, FlowSend};

/// Makes the two ends of a flow whose directions hold `window_bytes` each, and the line between them.
pub fn pair(window_bytes: usize) -> (Flow, Flow, Line) {
    let there = Half::new(window_bytes);
    let back = Half::new(window_bytes);
    let end = |out: &Half, into: &Half| Flow {
        send: Box::new(MemorySend(Arc::clone(&out.0))),
        recv: Box::new(MemoryRecv(Arc::clone(&into.0))),
    };
    (end(&there, &back), end(&back, &there), Line(there, back))
}

/// What lies between the two ends of a flow.
pub struct Line(Half, Half);

impl Line {
    /// Ends the session under the flow: both ends find it lost.
    pub fn cut(&self) {
        for half in [&self.0, &self.1] {
            half.0.lock().end(Ending::Lost);
        }
    }
}

struct Half(Arc<Mutex<State>>);

impl Half {
    fn new(window_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            chunks: VecDeque::new(),
            free_bytes: window_bytes,
            ending: None,
            received: false,
            reader: None,
            writer: None,
        })))
    }
}

/// One direction.
struct State {
    chunks: VecDeque<Bytes>,
    free_bytes: usize,
    ending: Option<Ending>,
    /// The reader has seen the clean end.
    received: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Finished,
    Reset,
    Stopped,
    Lost,
}

impl State {
    fn end(&mut self, ending: Ending) {
        // A clean end can still be cut short by a later reset, stop or loss, until it was received.
        if !self.received && matches!(self.ending, None | Some(Ending::Finished)) {
            self.ending = Some(ending);
        }
        self.wake();
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

struct MemorySend(Arc<Mutex<State>>);

impl FlowSend for MemorySend {
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, FlowEnd>> {
        let mut state = self.0.lock();
        match state.ending {
            Some(Ending::Lost) => return Poll::Ready(Err(FlowEnd::Lost)),
            Some(_) => return Poll::Ready(Err(FlowEnd::Reset)),
            None => {}
        }
        let length = data.len().min(state.free_bytes);
        if length == 0 && !data.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.free_bytes -= length;
        state.chunks.push_back(Bytes::copy_from_slice(&data[..length]));
        state.wake();
        Poll::Ready(Ok(length))
    }

    fn finish(&mut self) {
        self.0.lock().end(Ending::Finished);
    }

    fn reset(&mut self) {
        self.0.lock().end(Ending::Reset);
    }

    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowEnd>> {
        let mut state = self.0.lock();
        match state.ending {
            Some(Ending::Finished) if state.received => Poll::Ready(Ok(())),
            Some(Ending::Stopped | Ending::Reset) => Poll::Ready(Err(FlowEnd::Reset)),
            Some(Ending::Lost) => Poll::Ready(Err(FlowEnd::Lost)),
            _ => {
                state.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for MemorySend {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.ending.is_none() {
            state.end(Ending::Reset);
        }
    }
}

struct MemoryRecv(Arc<Mutex<State>>);

impl FlowRecv for MemoryRecv {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, FlowEnd>> {
        let mut state = self.0.lock();
        match state.ending {
            Some(Ending::Lost) => return Poll::Ready(Err(FlowEnd::Lost)),
            Some(Ending::Reset | Ending::Stopped) => return Poll::Ready(Err(FlowEnd::Reset)),
            None | Some(Ending::Finished) => {}
        }
        if let Some(chunk) = state.chunks.pop_front() {
            state.free_bytes += chunk.len();
            state.wake();
            return Poll::Ready(Ok(Some(chunk)));
        }
        if state.ending == Some(Ending::Finished) {
            state.received = true;
            state.wake();
            return Poll::Ready(Ok(None));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn stop(&mut self) {
        self.0.lock().end(Ending::Stopped);
    }
}

impl Drop for MemoryRecv {
    fn drop(&mut self) {
        self.stop();
    }
}
