//! Opens flows over whatever session there is.
//!
//! A flow asked for while the session is being made waits for it a few seconds, so that a browser started together with
//! the engine, or a change of networks, is a pause and not an error. Over the relay's limit of streams it waits too.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tandem_proto::wire::flow::{OpenError, Target, decode_answer, encode_request};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::session::Phase;
use crate::dial::{Dial, DialError, Flow};
use crate::transport::Stream;

/// How long a flow waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(5);

/// A dial over the engine's session.
pub(super) struct SessionDial {
    pub(super) phase: watch::Receiver<Phase>,
}

impl Dial for SessionDial {
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(async move {
            let mut request = Vec::new();
            encode_request(&target, &mut request).map_err(|_| OpenError::Internal)?;
            // A session that ends before the answer has opened nothing that anyone has used: the next one is asked.
            match ask(self.stream().await?, &request).await {
                Err(DialError::NotConnected) => ask(self.stream().await?, &request).await,
                done => done,
            }
        })
    }
}

impl SessionDial {
    /// A stream of the session that is, or is about to be.
    async fn stream(&self) -> Result<Stream, DialError> {
        let mut phase = self.phase.clone();
        let mut deadline = Instant::now() + SESSION_WAIT;
        loop {
            let settled = phase.wait_for(|phase| !matches!(phase, Phase::Connecting { .. }));
            let connection = match timeout_at(deadline, settled).await {
                Ok(Ok(phase)) => match &*phase {
                    Phase::Connected(connected) => connected.connection.clone(),
                    _ => return Err(DialError::NotConnected),
                },
                _ => return Err(DialError::NotConnected),
            };
            match connection.open_stream().await {
                Ok(stream) => return Ok(stream),
                // The session has just ended: the next one is waited for, once its making has begun.
                Err(_) => {
                    deadline = Instant::now() + SESSION_WAIT;
                    if !matches!(timeout_at(deadline, phase.changed()).await, Ok(Ok(()))) {
                        return Err(DialError::NotConnected);
                    }
                }
            }
        }
    }
}

/// Sends the request and waits for the relay's answer.
async fn ask(mut stream: Stream, request: &[u8]) -> Result<Flow, DialError> {
    stream.send.write_all(request).await.map_err(|_| DialError::NotConnected)?;
    let mut answer = [0; 1];
    stream.recv.read_exact(&mut answer).await.map_err(|_| DialError::NotConnected)?;
    decode_answer(answer[0])?;
    Ok(Flow { send: Box::new(stream.send), recv: Box::new(stream.recv) })
}
