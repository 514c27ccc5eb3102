//! One request and its response between a client and an origin.
//!
//! Request and response move side by side, as an origin may answer before it has read everything. Nothing is gathered on
//! the way: each side is read only while the other takes what was read. Informational responses pass; a client that waits
//! for `100 Continue` gets the origin's, or after [`CONTINUE_WAIT`] ours.
//!
//! A response that breaks off must not pass for a whole one, so its client's connection has to be reset; before the
//! response has begun, the client gets an answer that says what went wrong.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tandem_proto::wire::flow::Target;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::Answer;
use super::body::{Body, Malformed};
use super::origin::{Incoming, NoHead, Origin, Outgoing};
use super::request::Asked;
use super::response::{BadResponse, Kind, Response, read_response};
use crate::dial::FlowEnd;
use crate::pump::TcpLike;

/// How long a client that waits for `100 Continue` waits for an origin that says nothing.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// Bytes that one read of a client's connection takes.
const READ_BYTES: usize = 16 * 1024;

/// The client's side of an exchange.
pub(super) struct Client<'c> {
    pub(super) tcp: &'c TcpStream,
    /// What was read of it and not used yet.
    pub(super) inbox: &'c mut BytesMut,
    /// Whether its connection may carry another request, as far as it is known.
    pub(super) lasts: bool,
}

/// What is exchanged.
pub(super) struct Message<'m> {
    /// The request's head, as the origin gets it.
    pub(super) head: &'m [u8],
    pub(super) body: Body,
    pub(super) asked: Asked,
}

/// How an exchange went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Both messages are through.
    Exchanged { client_lasts: bool, origin_lasts: bool },
    /// The two go on in another protocol.
    Switched,
}

/// How it did not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client has left, or ended its side in the middle of its request.
    ClientGone,
    /// The response broke off, or the request did when the response had begun.
    Torn,
    /// The origin ended its connection without a byte of a response.
    NoAnswer,
    /// Nothing has gone to the client: it can get this.
    Answer(Answer),
}

/// What the two directions know of each other.
#[derive(Default)]
struct Progress {
    request_sent: AtomicBool,
    response_begun: AtomicBool,
}

/// Sends the request and hands on the response.
pub(super) async fn exchange(client: Client<'_>, message: Message<'_>, origin: &mut Origin) -> Result<Done, Failure> {
    let Client { tcp, inbox, lasts } = client;
    let Origin { target, outgoing, incoming, counted, .. } = origin;
    let Message { head, mut body, asked } = message;
    let progress = Progress::default();
    counted.set_finishing(false);
    let done = {
        let mut gone = pin!(tcp.peer_reset());
        let mut request = pin!(send_request(tcp, inbox, head, &mut body, outgoing));
        let mut response = pin!(hand_on_response(tcp, incoming, target, asked, lasts, &progress));
        let mut sending = true;
        loop {
            tokio::select! {
                biased;
                () = &mut gone => return Err(Failure::ClientGone),
                sent = &mut request, if sending => {
                    sending = false;
                    match sent {
                        Ok(()) => {
                            progress.request_sent.store(true, Ordering::Relaxed);
                            counted.set_finishing(true);
                        }
                        // What the origin has to say about it comes with the response.
                        Err(Unsent::Origin) => {}
                        Err(Unsent::Client) => return Err(Failure::ClientGone),
                        Err(Unsent::Malformed) if progress.response_begun.load(Ordering::Relaxed) => {
                            return Err(Failure::Torn);
                        }
                        Err(Unsent::Malformed) => {
                            return Err(Failure::Answer(Answer::bad_request("the chunks of the request's body are broken")));
                        }
                    }
                }
                done = &mut response => break done?,
            }
        }
    };
    Ok(match done {
        Done::Exchanged { client_lasts, origin_lasts } => {
            let whole = progress.request_sent.load(Ordering::Relaxed);
            Done::Exchanged {
                client_lasts: client_lasts && whole,
                // Bytes behind a response that nobody asked for would pass for the next one.
                origin_lasts: origin_lasts && whole && origin.incoming.inbox.is_empty(),
            }
        }
        Done::Switched => Done::Switched,
    })
}

/// Why a request was not sent whole.
enum Unsent {
    Client,
    Malformed,
    Origin,
}

impl From<FlowEnd> for Unsent {
    fn from(_: FlowEnd) -> Self {
        Unsent::Origin
    }
}

impl From<io::Error> for Unsent {
    fn from(_: io::Error) -> Self {
        Unsent::Client
    }
}

impl From<Malformed> for Unsent {
    fn from(_: Malformed) -> Self {
        Unsent::Malformed
    }
}

async fn send_request(
    tcp: &TcpStream,
    inbox: &mut BytesMut,
    head: &[u8],
    body: &mut Body,
    origin: &mut Outgoing,
) -> Result<(), Unsent> {
    origin.send(head).await?;
    loop {
        let length = body.measure(inbox, None)?;
        origin.send(&inbox[..length]).await?;
        inbox.advance(length);
        if body.is_done() {
            return Ok(());
        }
        if read(tcp, inbox).await? == 0 {
            return Err(Unsent::Client);
        }
    }
}

async fn hand_on_response(
    tcp: &TcpStream,
    origin: &mut Incoming,
    target: &Target,
    asked: Asked,
    client_lasts: bool,
    progress: &Progress,
) -> Result<Done, Failure> {
    let mut waits_for_continue = asked.expects_continue;
    let mut told_to_continue = false;
    let response = loop {
        let head = {
            let mut reading = pin!(origin.head());
            match timeout(CONTINUE_WAIT, &mut reading).await {
                Ok(head) => head,
                Err(_) => {
                    if waits_for_continue {
                        write(tcp, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                        told_to_continue = true;
                    }
                    reading.await
                }
            }
        };
        let head = head.map_err(|why| no_head(why, target))?;
        // An answer before the request is whole leaves a client that may still send it, or may not.
        let client_lasts = client_lasts && progress.request_sent.load(Ordering::Relaxed);
        let response = read_response(&head, asked, client_lasts)
            .map_err(|BadResponse(error, what)| Failure::Answer(Answer::bad_response(target, error, what)))?;
        waits_for_continue = false;
        match response.kind {
            Kind::Continue if told_to_continue => {}
            Kind::Continue | Kind::Informational if asked.old_client => {}
            Kind::Continue | Kind::Informational => write(tcp, &response.head).await?,
            Kind::Switched | Kind::Final => break response,
        }
    };
    progress.response_begun.store(true, Ordering::Relaxed);
    let Response { kind, head, body, payload_only, client_lasts, origin_lasts } = response;
    hand_on_body(tcp, origin, head, body, payload_only).await?;
    Ok(match kind {
        Kind::Switched => Done::Switched,
        _ => Done::Exchanged { client_lasts, origin_lasts },
    })
}

fn no_head(why: NoHead, target: &Target) -> Failure {
    match why {
        NoHead::Ended { at_once: true } => Failure::NoAnswer,
        NoHead::Ended { at_once: false } => {
            Failure::Answer(Answer::bad_response(target, "http_response_incomplete", "not to the end of the head"))
        }
        NoHead::TooLarge => {
            let error = "http_response_header_section_size";
            Failure::Answer(Answer::bad_response(target, error, "with a head that is too large"))
        }
    }
}

async fn hand_on_body(
    tcp: &TcpStream,
    origin: &mut Incoming,
    head: Vec<u8>,
    mut body: Body,
    payload_only: bool,
) -> Result<(), Failure> {
    // The head goes with the first of the body, so that a small response is one segment.
    let mut out = head;
    loop {
        let payload = payload_only.then_some(&mut out);
        let length = body.measure(&origin.inbox, payload).map_err(|Malformed| Failure::Torn)?;
        let arrived = &origin.inbox[..length];
        if payload_only {
            write(tcp, &out).await?;
        } else if out.is_empty() {
            write(tcp, arrived).await?;
        } else {
            out.extend_from_slice(arrived);
            write(tcp, &out).await?;
        }
        out.clear();
        origin.inbox.advance(length);
        if body.is_done() {
            return Ok(());
        }
        match origin.fill().await {
            Ok(true) => {}
            Ok(false) if body == Body::UntilClose => return Ok(()),
            Ok(false) | Err(_) => return Err(Failure::Torn),
        }
    }
}

/// Reads what a client has sent into its inbox; 0 at its clean end.
pub(super) async fn read(tcp: &TcpStream, inbox: &mut BytesMut) -> io::Result<usize> {
    loop {
        poll_fn(|cx| tcp.poll_readable(cx)).await?;
        match read_now(tcp, inbox) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

/// The room for it is on the stack for the moment of the read alone: whoever is waited for holds none.
fn read_now(tcp: &TcpStream, inbox: &mut BytesMut) -> io::Result<usize> {
    let mut room = [0; READ_BYTES];
    let length = TcpStream::try_read(tcp, &mut room)?;
    inbox.extend_from_slice(&room[..length]);
    Ok(length)
}

/// Writes all of it to a client.
pub(super) async fn write(tcp: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| tcp.poll_writable(cx)).await?;
        match TcpStream::try_write(tcp, bytes) {
            Ok(length) => bytes.advance(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Failure::ClientGone
    }
}
