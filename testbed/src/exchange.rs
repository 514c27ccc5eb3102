//! What the two ends of a bed say to each other on the transport's streams: bulk data and echoes.
//!
//! The flow protocol, tokens and origins are left out, so that what is measured is the transport. A stream begins with a
//! request of nine bytes, a kind and a count; a bulk answer is that many bytes, an echo answers each [`PING_BYTES`] with
//! the same bytes until the asker finishes. What follows a request to take bytes is read to its end, then their number is
//! the answer.

use bytes::Bytes;
use tandem_core::dial::{FlowEnd, FlowSend as _};
use tandem_core::transport::{Connection, STREAMS, SendStream, Stream};
use tokio::task::JoinSet;
use tokio::time::{Duration, interval};

/// Bytes of a small request and of its answer.
pub(crate) const PING_BYTES: usize = 64;

/// Bytes that a bulk answer hands to the transport at a time.
const CHUNK: usize = 64 * 1024;

/// Bytes that the other end may have on their way: more than it can use.
const MOST_ON_ITS_WAY: u64 = 256 << 20;

const REQUEST_BYTES: usize = 9;
const BULK: u8 = 1;
const ECHO: u8 = 2;
const TAKE: u8 = 3;
const EVEN: u8 = 4;

/// How often an even stream sends.
pub(crate) const EVEN_STEP: Duration = Duration::from_millis(10);

/// What an asker wants on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// That many bytes.
    Bulk(u64),
    /// Every small request back.
    Echo,
    /// The number of the bytes that follow.
    Take,
    /// That many bytes every [`EVEN_STEP`], for as long as the asker listens.
    Even(u64),
}

impl Request {
    pub(crate) fn encode(self) -> [u8; REQUEST_BYTES] {
        let (kind, count) = match self {
            Request::Bulk(bytes) => (BULK, bytes),
            Request::Echo => (ECHO, 0),
            Request::Take => (TAKE, 0),
            Request::Even(bytes) => (EVEN, bytes),
        };
        let mut request = [kind; REQUEST_BYTES];
        request[1..].copy_from_slice(&count.to_be_bytes());
        request
    }

    fn decode(request: [u8; REQUEST_BYTES]) -> Option<Self> {
        let [kind, count @ ..] = request;
        match kind {
            BULK => Some(Request::Bulk(u64::from_be_bytes(count))),
            ECHO => Some(Request::Echo),
            TAKE => Some(Request::Take),
            EVEN => Some(Request::Even(u64::from_be_bytes(count))),
            _ => None,
        }
    }
}

/// Answers on every stream that the other end opens, until the connection ends. The other end may use as much as a session
/// can, as with a relay that has seen its token.
pub async fn serve(connection: Connection) {
    connection.admit(MOST_ON_ITS_WAY);
    connection.allow_streams(STREAMS);
    let mut answers = JoinSet::new();
    while let Ok(stream) = connection.accept_stream().await {
        answers.spawn(answer(stream));
        // Those that are done must not pile up.
        while answers.try_join_next().is_some() {}
    }
}

/// Answers on one stream; an asker who goes away ends it.
async fn answer(mut stream: Stream) {
    let mut request = [0; REQUEST_BYTES];
    if stream.recv.read_exact(&mut request).await.is_err() {
        return;
    }
    match Request::decode(request) {
        Some(Request::Bulk(bytes)) => send_bulk(stream, bytes).await,
        Some(Request::Echo) => echo(stream).await,
        Some(Request::Take) => take(stream).await,
        // An asker who goes away is no error.
        Some(Request::Even(bytes)) => drop(write_evenly(&mut stream.send, bytes).await),
        None => stream.send.reset(),
    }
}

async fn send_bulk(mut stream: Stream, bytes: u64) {
    // An asker who goes away is no error.
    let _ = write_bulk(&mut stream.send, bytes).await;
}

/// Sends so many bytes and finishes.
pub(crate) async fn write_bulk(send: &mut SendStream, bytes: u64) -> Result<(), FlowEnd> {
    let chunk = Bytes::from_static(&[0x5a; CHUNK]);
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        send.write_all(&chunk[..part]).await?;
        left -= part as u64;
    }
    send.finish();
    Ok(())
}

/// Sends so many bytes every [`EVEN_STEP`] until nobody listens.
pub(crate) async fn write_evenly(send: &mut SendStream, bytes: u64) -> Result<(), FlowEnd> {
    let chunk = vec![0x5a; usize::try_from(bytes).unwrap_or(CHUNK).min(CHUNK)];
    let mut steps = interval(EVEN_STEP);
    loop {
        steps.tick().await;
        send.write_all(&chunk).await?;
    }
}

async fn take(mut stream: Stream) {
    let mut taken = 0u64;
    while let Ok(Some(chunk)) = stream.recv.read_chunk().await {
        taken += chunk.len() as u64;
    }
    if stream.send.write_all(&taken.to_be_bytes()).await.is_ok() {
        stream.send.finish();
    }
}

async fn echo(mut stream: Stream) {
    let mut ping = [0; PING_BYTES];
    while stream.recv.read_exact(&mut ping).await.is_ok() {
        if stream.send.write_all(&ping).await.is_err() {
            return;
        }
    }
    stream.send.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_wire_and_nonsense_is_none() {
        for request in [Request::Bulk(0), Request::Bulk(u64::MAX), Request::Echo, Request::Take, Request::Even(7)] {
            assert_eq!(Request::decode(request.encode()), Some(request));
        }
        assert_eq!(Request::decode([0xff; REQUEST_BYTES]), None);
    }
}
