//! The relay's end of a control stream: frames in, frames out.

use std::future::poll_fn;

use tandem_core::dial::{FlowEnd, FlowRecv, FlowSend};
use tandem_core::transport::Stream;
use tandem_proto::wire::flow::{ControlMessage, DecodeError};

/// A control stream.
pub(super) struct Control {
    stream: Stream,
    /// Bytes that have come and are not a whole frame yet; at most one frame and one chunk of the stream.
    partial: Vec<u8>,
}

/// Why a control stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    /// What the peer sent is not the protocol.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The stream or the connection ended.
    #[error(transparent)]
    End(#[from] FlowEnd),
    /// The stream ended inside a frame.
    #[error("the control stream ended inside a frame")]
    Torn,
}

impl Control {
    pub(super) fn new(stream: Stream) -> Self {
        Control { stream, partial: Vec::new() }
    }

    /// The peer's next message; `None` at the stream's end.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn read(&mut self) -> Result<Option<ControlMessage>, ControlError> {
        loop {
            if let Some((message, used)) = ControlMessage::decode(&self.partial)? {
                self.partial.drain(..used);
                return Ok(Some(message));
            }
            match poll_fn(|cx| self.stream.recv.poll_chunk(cx)).await? {
                Some(chunk) => self.partial.extend_from_slice(&chunk),
                None if self.partial.is_empty() => return Ok(None),
                None => return Err(ControlError::Torn),
            }
        }
    }

    pub(super) async fn write(&mut self, message: &ControlMessage) -> Result<(), ControlError> {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        Ok(self.stream.send.write_all(&frame).await?)
    }

    /// Writes the last message and waits until the peer has it, or has gone.
    pub(super) async fn finish_with(mut self, message: &ControlMessage) {
        if self.write(message).await.is_ok() {
            self.stream.send.finish();
            // Either way there is nothing more to say.
            let _ = poll_fn(|cx| self.stream.send.poll_stopped(cx)).await;
        }
    }
}
