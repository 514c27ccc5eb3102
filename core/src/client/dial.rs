//! Opens flows over whatever session there is.
//!
//! A flow asked for while the session is being made waits for it a few seconds, so that a browser started together with
//! the engine, or a change of networks or relays, is a pause and not an error. Over the relay's limit of streams it waits too.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::{OpenError, Target, decode_answer, encode_request};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::session::Phase;
use crate::dial::{Dial, DialError, Flow};
use crate::transport::{Connection, Stream};

/// How long a flow waits for a session.
const SESSION_WAIT: Duration = Duration::from_secs(5);
/// How often a flow is asked for: on the session that is, on the one that follows, and once more.
const MOST_TRIES: usize = 3;

/// A dial over the engine's session.
pub(super) struct SessionDial {
    pub(super) phase: watch::Receiver<Phase>,
}

impl Dial for SessionDial {
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(async move {
            let mut request = Vec::new();
            encode_request(&target, &mut request).map_err(|_| OpenError::Internal)?;
            for _ in 1..MOST_TRIES {
                let (stream, connection) = self.stream().await?;
                // A session that ends before the answer has opened nothing that anyone has used: the next one is asked. So it is
                // when one falls silent and another takes its place, and when its relay opens nothing more.
                let opened = tokio::select! {
                    biased;
                    opened = ask(stream, &request) => opened,
                    () = self.left_silent(&connection) => Err(DialError::NotConnected),
                };
                match opened {
                    Err(DialError::NotConnected) => {}
                    Err(DialError::Open(OpenError::Internal)) if self.is_left(&connection) => {}
                    done => return done,
                }
            }
            ask(self.stream().await?.0, &request).await
        })
    }
}

impl SessionDial {
    /// A stream of the session that is, or is about to be.
    async fn stream(&self) -> Result<(Stream, Connection), DialError> {
        let mut phase = self.phase.clone();
        let mut deadline = Instant::now() + SESSION_WAIT;
        loop {
            let settled = phase.wait_for(|phase| match phase {
                Phase::Connecting { .. } => false,
                Phase::Connected(connected) => !connected.moving,
                Phase::Ended { .. } => true,
            });
            let connection = match timeout_at(deadline, settled).await {
                Ok(Ok(phase)) => match &*phase {
                    Phase::Connected(connected) => connected.connection.clone(),
                    _ => return Err(DialError::NotConnected),
                },
                _ => return Err(DialError::NotConnected),
            };
            match connection.open_stream().await {
                Ok(stream) => return Ok((stream, connection)),
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

    /// Resolves when another session has taken the place of this one, which is silent.
    async fn left_silent(&self, connection: &Connection) {
        let mut phase = self.phase.clone();
        let followed = |phase: &Phase| matches!(phase, Phase::Connected(now) if !now.connection.is(connection));
        let gone = phase.wait_for(followed).await.is_err();
        if gone || connection.signs().iter().any(|path| path.state == PathState::Up) {
            std::future::pending::<()>().await;
        }
    }

    /// Whether new flows go, or are about to go, by another session.
    fn is_left(&self, connection: &Connection) -> bool {
        match &*self.phase.borrow() {
            Phase::Connected(now) => now.moving || !now.connection.is(connection),
            _ => false,
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
