//! The HTTP/1 proxy for local applications: `CONNECT`, and requests with the URL of an `http` server.
//!
//! What a request asks for is decided without I/O in [`request`], what its response says in [`response`], where bodies end
//! in [`body`]; here and in `exchange` they become reads, writes and flows. After `CONNECT`, and after a switch of
//! protocols (WebSocket), the pump takes over, with all of TCP's endings. Else a client's connection carries request after
//! request, in order, and the flow to the last origin is kept for the next request to it, as long as the client stays.
//!
//! ```text
//! client → head → request → origin (kept, or dialled) → exchange → response → client, and again
//!                    ├→ CONNECT: 200, pump                 └→ 101: pump
//!                    └→ an answer of the proxy itself (answer)
//! ```
//!
//! This is no use of a server and a client library, because a proxy has to hand on what those keep to themselves:
//! informational responses, the origin's own `100 Continue`, the difference of an end and a reset, fields as they were
//! written.

mod answer;
mod body;
mod exchange;
mod fields;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod origin;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use tandem_proto::wire::flow::Target;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use self::answer::Answer;
use self::exchange::{Client, Done, Failure, Message, exchange, read, write};
use self::fields::{HeadEnd, TooLarge};
use self::origin::{Origin, skip_empty_lines};
use self::request::{LIMITS, Request, Wish, read_request};
use super::waiting::Place;
use super::{Check, HANDSHAKE_LIMIT, Shared, farewell};
use crate::dial::Flow;
use crate::pump::{Early, TcpLike, pump_after};

/// How long a connection is kept for another request.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn serve(
    tcp: TcpStream,
    mut place: Place<'_>,
    check: Option<Check<'_>>,
    shared: &Shared,
    mut deadline: Instant,
) {
    let Ok(local) = tcp.local_addr() else { return };
    let mut connection = Connection { tcp, inbox: BytesMut::new(), origin: None, shared };
    loop {
        let read = tokio::select! {
            () = shared.stop.cancelled() => return,
            read = connection.head(deadline) => read,
        };
        let request = match read {
            Ok(head) => read_request(&head, check, local),
            Err(NoRequest::Answer(answer)) => Err(answer),
            Err(NoRequest::Ended) => return,
        };
        place.leave();
        let next = match request {
            Ok(request) => connection.serve(request).await,
            Err(answer) => connection.answer(&answer, true, false).await,
        };
        match next {
            Next::Request => {}
            Next::Close => return connection.close().await,
            Next::Reset => return connection.tcp.reset_on_drop(true),
            Next::Tunnel(origin) => return connection.tunnel(origin).await,
        }
        place.wait_idle();
        if !connection.idle().await {
            return;
        }
        deadline = Instant::now() + HANDSHAKE_LIMIT;
    }
}

/// What becomes of a client's connection.
enum Next {
    /// It carries another request.
    Request,
    /// It ends, and what was written arrives.
    Close,
    /// It ends with a reset: the client must not take what it has for everything.
    Reset,
    /// It is joined to the origin's.
    Tunnel(Origin),
}

/// Why there is no head of a request.
enum NoRequest {
    /// The client has ended the connection, or said nothing in time.
    Ended,
    /// It gets this, and its connection is closed.
    Answer(Answer),
}

/// One client's connection.
struct Connection<'s> {
    tcp: TcpStream,
    /// What was read of it and not used yet.
    inbox: BytesMut,
    /// The flow that carried the last response, if it may carry another.
    origin: Option<Origin>,
    shared: &'s Shared,
}

impl Connection<'_> {
    /// Reads the whole head of a request.
    async fn head(&mut self, deadline: Instant) -> Result<BytesMut, NoRequest> {
        let mut end = HeadEnd::new(LIMITS);
        loop {
            if !end.has_begun() {
                skip_empty_lines(&mut self.inbox);
            }
            // What is no method will be no request, however much of it comes.
            if self.inbox.first().is_some_and(|byte| !byte.is_ascii_graphic()) {
                return Err(NoRequest::Answer(Answer::bad_request("this is no HTTP request")));
            }
            match end.find(&self.inbox) {
                Ok(Some(length)) => return Ok(self.inbox.split_to(length)),
                Ok(None) => {}
                Err(part @ TooLarge::Line) => return Err(NoRequest::Answer(Answer::too_large(part, LIMITS.line))),
                Err(part @ TooLarge::Fields) => return Err(NoRequest::Answer(Answer::too_large(part, LIMITS.fields))),
            }
            match timeout_at(deadline, read(&self.tcp, &mut self.inbox)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => return Err(NoRequest::Ended),
                Err(_) if self.inbox.is_empty() => return Err(NoRequest::Ended),
                Err(_) => return Err(NoRequest::Answer(Answer::too_slow())),
            }
        }
    }

    async fn serve(&mut self, request: Request) -> Next {
        let Request { wish, asked, body, lasts, repeatable } = request;
        let lasts = lasts && !self.shared.stop.is_cancelled();
        match wish {
            Wish::Answer(answer) => self.answer(&answer, !(lasts && body.is_done()), asked.head_only).await,
            Wish::Tunnel(target) => self.connect(target, lasts).await,
            Wish::Forward { target, head } => {
                let mut kept = self.origin.take().filter(|origin| repeatable && origin.target == target);
                loop {
                    let mut origin = match kept.take().and_then(Origin::if_quiet) {
                        Some(origin) => origin,
                        None => match self.dial(&target).await {
                            Ok(origin) => origin,
                            Err(Some(answer)) => {
                                let close = !(lasts && body.is_done());
                                return self.answer(&answer, close, asked.head_only).await;
                            }
                            Err(None) => return Next::Close,
                        },
                    };
                    let client = Client { tcp: &self.tcp, inbox: &mut self.inbox, lasts };
                    let message = Message { head: &head, body: body.clone(), asked };
                    // Until all is well, whatever ends this must not look like a clean close.
                    self.tcp.reset_on_drop(true);
                    let outcome = exchange(client, message, &mut origin).await;
                    let answer = match outcome {
                        Ok(Done::Switched) => return Next::Tunnel(origin),
                        Ok(Done::Exchanged { client_lasts, origin_lasts }) => {
                            self.tcp.reset_on_drop(false);
                            origin.used = true;
                            self.origin = Some(origin).filter(|_| origin_lasts);
                            return if client_lasts { Next::Request } else { Next::Close };
                        }
                        Err(Failure::ClientGone | Failure::Torn) => return Next::Reset,
                        // The origin has closed an idle connection just when it was asked again.
                        Err(Failure::NoAnswer) if origin.used => continue,
                        Err(Failure::NoAnswer) => Answer::no_answer(&target),
                        Err(Failure::Answer(answer)) => answer,
                    };
                    self.tcp.reset_on_drop(false);
                    return self.answer(&answer, true, asked.head_only).await;
                }
            }
        }
    }

    /// Opens a flow to the target; or what the client is told instead, or nothing where it has left.
    async fn dial(&mut self, target: &Target) -> Result<Origin, Option<Answer>> {
        match self.shared.open(&self.tcp, target).await {
            None => Err(None),
            Some(Ok(flow)) => Ok(Origin::new(target.clone(), flow, self.shared.flows.count())),
            Some(Err(error)) => Err(Some(Answer::not_reached(target, &error))),
        }
    }

    async fn connect(&mut self, target: Target, lasts: bool) -> Next {
        self.origin = None;
        match self.dial(&target).await {
            Ok(origin) => match write(&self.tcp, b"HTTP/1.1 200 Connection established\r\n\r\n").await {
                Ok(()) => Next::Tunnel(origin),
                Err(_) => Next::Reset,
            },
            // What an eager client has sent behind its request was meant for the target.
            Err(Some(answer)) => self.answer(&answer, !(lasts && self.inbox.is_empty()), false).await,
            Err(None) => Next::Close,
        }
    }

    async fn answer(&mut self, answer: &Answer, close: bool, head_only: bool) -> Next {
        tracing::debug!(status = answer.status(), "HTTP request answered by the proxy itself");
        match write(&self.tcp, &answer.bytes(close, head_only)).await {
            Ok(()) if close => Next::Close,
            Ok(()) => Next::Request,
            Err(_) => Next::Reset,
        }
    }

    /// Joins the client to the origin until both are done.
    async fn tunnel(self, origin: Origin) {
        let early = Early { to_flow: self.inbox.freeze(), to_tcp: origin.incoming.inbox.freeze() };
        let flow = Flow { send: origin.outgoing.flow, recv: origin.incoming.flow };
        let mut counted = origin.counted;
        counted.set_finishing(false);
        let stats = pump_after(flow, self.tcp, counted, early).await;
        tracing::debug!(target = %origin.target, ?stats, "flow ended");
    }

    /// Waits until the client says something; `false` when its connection is to end.
    async fn idle(&mut self) -> bool {
        if !self.inbox.is_empty() {
            return true;
        }
        self.inbox = BytesMut::new();
        if let Some(origin) = &mut self.origin {
            origin.rest();
        }
        let (mut limit, mut first) = (pin!(sleep(IDLE_LIMIT)), [0; 1]);
        loop {
            let stirs = async {
                match &mut self.origin {
                    Some(origin) => origin.stirs().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // Not readiness alone, which a read that took everything leaves standing.
                peeked = self.tcp.peek(&mut first) => return peeked.is_ok(),
                () = self.shared.stop.cancelled() => return false,
                () = &mut limit => return false,
                () = stirs => self.origin = None,
            }
        }
    }

    /// Closes; the origin's flow counts as open until the last bytes are on their way.
    async fn close(self) {
        farewell(self.tcp).await;
        drop(self.origin);
    }
}
