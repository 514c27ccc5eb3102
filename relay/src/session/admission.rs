//! Who gets a session: the Hello, the token, the limits (`docs/PROTOCOL.md`, "Control stream").

use std::sync::Arc;
use std::time::Duration;

use tandem_core::transport::Connection;
use tandem_proto::congestion::Algorithm;
use tandem_proto::wire::flow::{CloseCode, ControlMessage, Hello, Refused, RefusedReason, VersionRange, Welcome};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::control::Control;
use super::live::Live;
use crate::directory::Pin;
use crate::places::Place;
use crate::serve::Shared;
use crate::tokens::Claims;

/// How long a Hello may take after the handshake. With [`LINGER`] it makes the protocol's 5 s.
const HELLO_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a refused client has to read why.
const LINGER: Duration = Duration::from_secs(1);
/// What the relay calls itself.
const RELAY_VERSION: &str = concat!("tandem-relay ", env!("CARGO_PKG_VERSION"));

/// A client that may be served.
pub(super) struct Admitted {
    pub(super) control: Control,
    pub(super) claims: Claims,
    /// The next key, told up to what it has seen.
    pub(super) next_pin: watch::Receiver<Option<Pin>>,
    pub(super) congestion: Algorithm,
    pub(super) client: String,
    pub(super) live: Arc<Live>,
    /// Its place among the relay's sessions.
    pub(super) place: Place<Arc<Live>>,
}

/// Listens to the client's Hello and answers it. `None` when the client is not to be served; the connection is closed then.
pub(super) async fn admit<E>(connection: &Connection, relay: &Shared<E>) -> Option<Admitted> {
    let hello = async {
        let mut control = Control::new(connection.accept_stream().await.ok()?);
        loop {
            match control.read().await {
                Ok(Some(ControlMessage::Unknown { .. })) => {}
                Ok(Some(message)) => return Some((control, message)),
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "no Hello could be read");
                    return None;
                }
            }
        }
    };
    let Ok(Some((mut control, message))) = timeout(HELLO_TIMEOUT, hello).await else {
        relay.metrics.client_refused(None);
        connection.close(CloseCode::NoHello.code(), "no acceptable Hello came");
        return None;
    };
    let verdict = match message {
        ControlMessage::Hello(hello) => judge(hello, connection, relay),
        ControlMessage::ForeignHello(theirs) => Err(version_refusal(theirs)),
        _ => {
            relay.metrics.client_refused(None);
            connection.close(CloseCode::Protocol.code(), "the control stream must begin with a Hello");
            return None;
        }
    };
    match verdict {
        Ok((hello, claims, version, live, place)) => {
            let congestion = hello.congestion.unwrap_or_default();
            connection.set_congestion(congestion);
            let mut next_pin = relay.next_pin.clone();
            let welcome = ControlMessage::Welcome(Welcome {
                version,
                features: hello.features & relay.features(),
                max_flows: relay.limits.flows_per_session,
                token_expires: u64::try_from(claims.expires.unix_timestamp()).unwrap_or(0),
                congestion: Some(congestion),
                next_pin: *next_pin.borrow_and_update(),
                relay: RELAY_VERSION.to_owned(),
            });
            match timeout(LINGER, control.write(&welcome)).await {
                Ok(Ok(())) => {
                    Some(Admitted { control, claims, next_pin, congestion, client: hello.client, live, place })
                }
                _ => {
                    connection.close(CloseCode::NoHello.code(), "the client does not read");
                    None
                }
            }
        }
        Err((reason, text)) => {
            relay.metrics.client_refused(Some(reason));
            tracing::info!(?reason, "client refused");
            tracing::debug!(text, remotes = ?connection.remote_addresses(), "why, and whence it came");
            let relay_time = u64::try_from(OffsetDateTime::now_utc().unix_timestamp()).unwrap_or(0);
            let versions = VersionRange::OURS;
            let refused = ControlMessage::Refused(Refused { reason, versions, relay_time, text: text.clone() });
            // Read or not, the connection ends; its code repeats the reason.
            let _ = timeout(LINGER, control.finish_with(&refused)).await;
            connection.close(CloseCode::Refused(reason).code(), &text);
            None
        }
    }
}

type Refusal = (RefusedReason, String);

type Welcomed = (Hello, Claims, u16, Arc<Live>, Place<Arc<Live>>);

fn judge<E>(hello: Hello, connection: &Connection, relay: &Shared<E>) -> Result<Welcomed, Refusal> {
    let version = hello.versions.common(VersionRange::OURS).ok_or_else(|| version_refusal(hello.versions))?;
    let claims = relay
        .verifier
        .verify(&hello.token, OffsetDateTime::now_utc())
        .map_err(|error| (error.reason(), error.to_string()))?;
    if relay.revoked.borrow().contains(&claims.id) {
        return Err((RefusedReason::Revoked, "the token was revoked".to_owned()));
    }
    if !relay.memory.has_room() {
        return Err((RefusedReason::Full, "the relay uses as much memory as it may".to_owned()));
    }
    let live = Arc::new(Live::new(connection.clone()));
    let place = relay
        .places
        .take(&claims.id, Arc::clone(&live))
        .map_err(|no_place| (RefusedReason::Full, no_place.to_string()))?;
    Ok((hello, claims, version, live, place))
}

fn version_refusal(theirs: VersionRange) -> Refusal {
    let ours = VersionRange::OURS;
    let older = if theirs.max < ours.min { "client" } else { "relay" };
    let text = format!("this relay speaks {ours} of the protocol, the client {theirs}: update the {older}");
    (RefusedReason::Version, text)
}
