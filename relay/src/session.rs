//! One client's session: admission, then flows until the connection ends.
//!
//! A session begins on the control stream ([`admission`]); no other stream is looked at before. Then every stream is a flow with a task of
//! its own ([`flow`]), and this module's loop watches over what can end them all: the client, a token that is revoked or
//! expires ([`token`]), the relay's drain.

mod admission;
mod control;
mod flow;
mod live;
mod token;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::dial::FlowEnd;
use tandem_core::transport::{Connection, FIRST_STREAMS, STREAMS, Stream};
use tandem_proto::wire::flow::{CloseCode, ControlMessage, GoingAway, OpenError, RefusedReason};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::admission::admit;
use self::control::{Control, ControlError};
use self::token::Token;
use crate::egress::Egress;
use crate::metrics::SessionEnd;
use crate::rate::DeviceRate;
use crate::serve::Shared;
use crate::tokens::Revoked;

pub(crate) use self::live::Live;

/// How long a notice may wait for a client that does not read.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a connection from its handshake to its end.
pub(crate) async fn run<E: Egress>(connection: Connection, relay: Arc<Shared<E>>, drain: CancellationToken) {
    let Some(admitted) = admit(&connection, &relay).await else {
        return;
    };
    let span = tracing::info_span!("session", token = %admitted.claims.id);
    let session = Session {
        connection,
        revoked: relay.revoked.clone(),
        token_id: admitted.claims.id.clone(),
        token: Token::new(admitted.claims, relay.renewer.clone(), admitted.next_pin),
        control: admitted.control,
        relay,
        flows: JoinSet::new(),
        allowed: FIRST_STREAMS,
        live: Arc::clone(&admitted.live),
        rate: admitted.place.rate.clone(),
    };
    async {
        let metrics = Arc::clone(&session.relay.metrics);
        session.connection.admit(session.relay.limits.session_bytes());
        metrics.session_opened();
        tracing::info!(congestion = %admitted.congestion, client = admitted.client, "session opened");
        tracing::debug!(remotes = ?session.connection.remote_addresses(), "client's addresses");
        let (end, text) = session.serve(drain).await;
        admitted.live.tell(&metrics);
        metrics.session_closed(end);
        tracing::info!(end = text, "session closed");
    }
    .instrument(span)
    .await;
    drop(admitted.place);
}

struct Session<E> {
    connection: Connection,
    relay: Arc<Shared<E>>,
    revoked: watch::Receiver<Arc<Revoked>>,
    token_id: String,
    token: Token,
    control: Control,
    flows: JoinSet<()>,
    /// Streams that the client may have open now.
    allowed: u32,
    live: Arc<Live>,
    /// What the flows of its device share.
    rate: Option<Arc<DeviceRate>>,
}

impl<E: Egress> Session<E> {
    /// Runs until the session is over; says why.
    async fn serve(mut self, drain: CancellationToken) -> (SessionEnd, &'static str) {
        let mut drain_end: Option<Instant> = None;
        loop {
            if drain_end.is_some() && self.flows.is_empty() {
                return self.close(SessionEnd::Stopped, CloseCode::GoingAway, "the relay stopped");
            }
            tokio::select! {
                biased;
                () = revoked(&mut self.revoked, &self.token_id) => {
                    return self.close(SessionEnd::Revoked, CloseCode::Refused(RefusedReason::Revoked), "the token was revoked");
                }
                () = self.token.expired() => {
                    return self.close(SessionEnd::Expired, CloseCode::Refused(RefusedReason::Expired), "the token expired");
                }
                update = self.token.update() => {
                    // A client that does not read it gets it again in its next session.
                    let _ = timeout(NOTICE_TIMEOUT, self.control.write(&ControlMessage::Update(update))).await;
                }
                message = self.control.read() => match message {
                    // Nothing that a client says after its Hello concerns this version.
                    Ok(Some(ControlMessage::Unknown { frame_type })) => tracing::debug!(frame_type, "unknown frame skipped"),
                    Ok(Some(_)) => return self.close(SessionEnd::Protocol, CloseCode::Protocol, "unexpected message on the control stream"),
                    Ok(None) => return self.close(SessionEnd::Client, CloseCode::Done, "the client ended the session"),
                    Err(ControlError::End(FlowEnd::Lost)) => return self.lost(),
                    Err(error) => {
                        tracing::debug!(%error, "control stream broke");
                        return self.close(SessionEnd::Protocol, CloseCode::Protocol, "the control stream broke");
                    }
                },
                () = drain.cancelled(), if drain_end.is_none() => {
                    drain_end = Some(Instant::now() + self.relay.limits.drain());
                    let text = "the relay is stopping".to_owned();
                    let notice = ControlMessage::GoingAway(GoingAway { text });
                    // A client that does not read it learns from the connection's end.
                    let _ = timeout(NOTICE_TIMEOUT, self.control.write(&notice)).await;
                }
                () = at(drain_end) => return self.close(SessionEnd::Stopped, CloseCode::GoingAway, "the relay stopped"),
                Some(_) = self.flows.join_next() => {}
                stream = self.connection.accept_stream() => match stream {
                    Ok(stream) => self.start_flow(stream, drain_end.is_some()),
                    Err(closed) => {
                        tracing::debug!(code = closed.code, reason = closed.reason, "connection ended");
                        return self.lost();
                    }
                },
            }
        }
    }

    fn start_flow(&mut self, stream: Stream, draining: bool) {
        let refusal = if draining {
            Some(OpenError::Internal)
        } else if self.flows.len() >= self.relay.limits.flows_per_session as usize || !self.relay.memory.has_room() {
            Some(OpenError::Limit)
        } else {
            None
        };
        let task = match refusal {
            // A refusal waits for the client to take one byte, so it is a task too; QUIC's stream limit bounds them.
            Some(error) => self.flows.spawn(flow::refuse(stream, error).in_current_span()),
            None => self.flows.spawn(flow::serve(stream, Arc::clone(&self.relay), self.rate.clone()).in_current_span()),
        };
        drop(task);
        // A place that QUIC keeps costs memory: there are to be twice as many as are used, within the limit.
        let used = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        let wanted = used.saturating_mul(2).min(STREAMS);
        if wanted > self.allowed {
            self.allowed = wanted.max(self.allowed.saturating_mul(2)).min(STREAMS);
            self.connection.allow_streams(self.allowed);
        }
    }

    fn close(&self, end: SessionEnd, code: CloseCode, reason: &'static str) -> (SessionEnd, &'static str) {
        self.connection.close(code.code(), reason);
        (end, reason)
    }

    fn lost(&self) -> (SessionEnd, &'static str) {
        if self.live.gave_way() {
            return (SessionEnd::Replaced, "another session of its device took its place");
        }
        (SessionEnd::Lost, "the connection ended")
    }
}

/// Resolves when the token is among the revoked ones.
async fn revoked(list: &mut watch::Receiver<Arc<Revoked>>, token_id: &str) {
    if list.wait_for(|revoked| revoked.contains(token_id)).await.is_err() {
        // Nobody revokes tokens of this relay any more.
        pending::<()>().await;
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
