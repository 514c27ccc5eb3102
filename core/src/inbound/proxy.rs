//! One port for two protocols: the first byte tells a SOCKS5 client from an HTTP client.
//!
//! SOCKS5 begins with its version number, an HTTP request with a letter. SOCKS4 is known by its number as well and gets
//! its own refusal; TLS, which a browser speaks to a proxy that was entered as an "HTTPS proxy", gets an alert.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::waiting::Place;
use super::{Check, HANDSHAKE_LIMIT, Shared, farewell, http, socks5};

const SOCKS4: u8 = 4;
const SOCKS5: u8 = 5;
/// First byte of a TLS handshake record.
const TLS: u8 = 22;
/// "Request rejected": a null byte, code 91, and six bytes that mean nothing in a refusal.
const SOCKS4_REFUSED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];
/// A fatal alert, "protocol version" (RFC 8446 section 6.2).
const TLS_REFUSED: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

pub(super) async fn serve(mut tcp: TcpStream, place: Place<'_>, check: Option<Check<'_>>, shared: &Shared) {
    let deadline = Instant::now() + HANDSHAKE_LIMIT;
    let mut first = [0; 1];
    let peeked = tokio::select! {
        () = shared.stop.cancelled() => return,
        peeked = timeout_at(deadline, tcp.peek(&mut first)) => peeked,
    };
    match peeked {
        Ok(Ok(1)) => {}
        Ok(_) => return tracing::debug!("local connection ended before it said anything"),
        Err(_) => return tracing::debug!("local connection closed: it has said nothing"),
    }
    let refusal: &[u8] = match first[0] {
        SOCKS5 => return socks5::serve(tcp, place, check, shared, deadline).await,
        SOCKS4 => &SOCKS4_REFUSED,
        TLS => &TLS_REFUSED,
        _ => return http::serve(tcp, place, check, shared, deadline).await,
    };
    tracing::debug!(first = first[0], "client turned away: only SOCKS5 and plain HTTP are spoken here");
    if tcp.write_all(refusal).await.is_ok() {
        farewell(tcp).await;
    }
}
