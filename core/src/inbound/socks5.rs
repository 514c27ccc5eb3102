//! SOCKS5 for local applications: the codec's events turned into reads, writes and a flow.

mod codec;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;

use std::io;

use tandem_proto::wire::flow::Target;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use self::codec::{Event, Handshake, Refusal, Reply};
use super::waiting::Place;
use super::{Check, Shared, farewell};
use crate::pump::pump_counted;

pub(super) async fn serve(
    mut tcp: TcpStream,
    mut place: Place<'_>,
    check: Option<Check<'_>>,
    shared: &Shared,
    deadline: Instant,
) {
    let negotiated = tokio::select! {
        () = shared.stop.cancelled() => return,
        negotiated = timeout_at(deadline, negotiate(&mut tcp, check)) => negotiated,
    };
    place.leave();
    let target = match negotiated {
        Ok(Ok(Some(target))) => target,
        Ok(Ok(None)) => return farewell(tcp).await,
        Ok(Err(error)) => return tracing::debug!(%error, "local connection ended during its SOCKS handshake"),
        Err(_) => return tracing::debug!("local connection closed: its SOCKS handshake took too long"),
    };
    let Some(opened) = shared.open(&tcp, &target).await else {
        return;
    };
    let reply = opened.as_ref().map_or_else(Reply::from, |_| Reply::Succeeded);
    if tcp.write_all(&reply.bytes()).await.is_err() {
        return;
    }
    match opened {
        Err(_) => farewell(tcp).await,
        Ok(flow) => {
            let stats = pump_counted(flow, tcp, shared.flows.count()).await;
            tracing::debug!(%target, ?stats, "flow ended");
        }
    }
}

/// Runs a handshake up to its request; `None` when the client was turned away.
async fn negotiate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    check: Option<Check<'_>>,
) -> io::Result<Option<Target>> {
    let mut handshake = Handshake::new(check);
    loop {
        let length = stream.read(handshake.space()).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match handshake.handle_read(length) {
            None => {}
            Some(Event::Send(bytes)) => stream.write_all(&bytes).await?,
            Some(Event::Connect(target)) => return Ok(Some(target)),
            Some(Event::Refuse(refusal)) => {
                tracing::debug!(?refusal, "SOCKS client turned away");
                match refusal {
                    Refusal::Silent => {}
                    Refusal::Short(bytes) => stream.write_all(&bytes).await?,
                    Refusal::Reply(reply) => stream.write_all(&reply.bytes()).await?,
                }
                return Ok(None);
            }
        }
    }
}
