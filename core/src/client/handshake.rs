//! From a pairing link to a connection that the relay has accepted.
//!
//! Once QUIC has connected, the client says Hello on the control stream and hears Welcome; what can go wrong on the whole way
//! to a session is [`SessionError`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tandem_proto::pairing::PairingLink;
use tandem_proto::wire::flow::{
    ControlMessage, DecodeError, FEATURE_MEASURE, FRAME_HEAD, Hello, Refused, RefusedReason, VersionRange, Welcome,
    frame_length,
};
use tokio::time::timeout;

use crate::transport::{ConnectError, Connection, ConnectionClosed, RecvStream, Stream};

/// How long the relay may take to answer a Hello.
const WELCOME_LIMIT: Duration = Duration::from_secs(10);

/// How soon the end of a connection follows that of its control stream.
const CLOSE_FOLLOWS: Duration = Duration::from_secs(1);
/// Clocks that differ by less are not worth a word.
const CLOCKS_AGREE: Duration = Duration::from_secs(120);

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("none of the relay's names has an address: {0}")]
    Lookup(String),
    #[error("no network can be used: {0}")]
    NoNetwork(String),
    #[error("the relay cannot be reached")]
    Connect(#[from] ConnectError),
    #[error("the relay refuses this client: {}{}", why(.0.reason), details(.0))]
    Refused(Refused),
    #[error("the relay refuses this client: {}", why(*.0))]
    ClosedAsRefused(RefusedReason),
    #[error("the connection to the relay ended")]
    Closed(#[from] ConnectionClosed),
    #[error("the relay ended the control stream")]
    ControlEnded,
    #[error("the relay did not answer in time")]
    NoWelcome,
    #[error("the relay does not keep to the protocol")]
    Protocol(#[from] DecodeError),
    #[error("the relay sent something else than its welcome first")]
    Unexpected,
}

impl SessionError {
    /// Whether trying again cannot help: the relay has understood and says no to this client.
    pub(super) fn is_final(&self) -> bool {
        let reason = match self {
            SessionError::Refused(refused) => refused.reason,
            SessionError::ClosedAsRefused(reason) => *reason,
            _ => return false,
        };
        match reason {
            RefusedReason::Full | RefusedReason::Other => false,
            RefusedReason::BadToken
            | RefusedReason::Expired
            | RefusedReason::NotYetValid
            | RefusedReason::Revoked
            | RefusedReason::Version => true,
        }
    }
}

/// A refusal in words for the person who can do something about it.
fn why(reason: RefusedReason) -> &'static str {
    match reason {
        RefusedReason::BadToken => "it does not know the token of this pairing; pair again with a new link",
        RefusedReason::Expired => "the token of this pairing has expired; pair again with a new link",
        RefusedReason::NotYetValid => "the token of this pairing is not valid yet; one of the two clocks is wrong",
        RefusedReason::Revoked => "this pairing was revoked; pair again with a new link",
        RefusedReason::Version => "it speaks another version of the protocol; update the older side",
        RefusedReason::Full => "it is full",
        RefusedReason::Other => "it gives no reason that this version knows",
    }
}

/// What the relay adds: its words, and the clocks or versions where they matter.
fn details(refused: &Refused) -> String {
    let mut details = match refused.reason {
        RefusedReason::Expired | RefusedReason::NotYetValid => clocks(refused.relay_time, SystemTime::now()),
        RefusedReason::Version => format!(" (it speaks {}, this client {})", refused.versions, VersionRange::OURS),
        _ => String::new(),
    };
    if !refused.text.is_empty() {
        // The relay's words go to a terminal.
        let text: String = refused.text.chars().filter(|c| !c.is_control()).collect();
        details.push_str(&format!(" (it says: {text})"));
    }
    details
}

fn clocks(relay_time: u64, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let apart = now.abs_diff(relay_time);
    if apart < CLOCKS_AGREE.as_secs() {
        return String::new();
    }
    let side = if now > relay_time { "ahead of" } else { "behind" };
    format!(" (this device's clock is {} minutes {side} the relay's)", apart / 60)
}

/// An accepted session.
pub(super) struct Accepted {
    pub(super) welcome: Welcome,
    pub(super) control: ControlReader,
    /// Kept open: the relay may take its end for the client's going away.
    pub(super) control_send: crate::transport::SendStream,
}

/// Says Hello and waits for the relay's Welcome.
pub(super) async fn say_hello(
    connection: &Connection,
    link: &PairingLink,
    congestion: tandem_proto::congestion::Algorithm,
) -> Result<Accepted, SessionError> {
    let exchange = async {
        let Stream { mut send, recv } = connection.open_stream().await?;
        let hello = ControlMessage::Hello(Hello {
            versions: VersionRange::OURS,
            features: FEATURE_MEASURE,
            congestion: Some(congestion),
            token: link.token.clone(),
            client: concat!("tandem ", env!("CARGO_PKG_VERSION")).to_owned(),
        });
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        let mut control = ControlReader { recv };
        // A relay that refuses at once may stop reading before it has everything: its answer is what counts.
        let _ = send.write_all(&bytes).await;
        match control.next().await? {
            ControlMessage::Welcome(welcome) => Ok(Accepted { welcome, control, control_send: send }),
            ControlMessage::Refused(refused) => Err(SessionError::Refused(refused)),
            _ => Err(SessionError::Unexpected),
        }
    };
    match timeout(WELCOME_LIMIT, exchange).await {
        Err(_) => Err(SessionError::NoWelcome),
        Ok(Err(error)) => Err(better_reason(error, connection).await),
        Ok(done) => done,
    }
}

/// The relay's reason for closing, if the control stream ended because of that: it tells more.
pub(super) async fn better_reason(error: SessionError, connection: &Connection) -> SessionError {
    match (error, timeout(CLOSE_FOLLOWS, connection.closed())) {
        (SessionError::ControlEnded, closed) => closed.await.map_or(SessionError::ControlEnded, closed_error),
        (error, _) => error,
    }
}

/// What the end of a connection means for the session.
pub(super) fn closed_error(closed: ConnectionClosed) -> SessionError {
    use tandem_proto::wire::flow::CloseCode;
    match closed.code.and_then(CloseCode::from_code) {
        Some(CloseCode::Refused(reason)) => SessionError::ClosedAsRefused(reason),
        _ => SessionError::Closed(closed),
    }
}

/// The relay's messages on the control stream.
pub(super) struct ControlReader {
    recv: RecvStream,
}

impl ControlReader {
    /// The next message of a type this version knows.
    ///
    /// # Cancel safety
    /// Not cancel safe: a message may be lost half read.
    pub(super) async fn next(&mut self) -> Result<ControlMessage, SessionError> {
        loop {
            let mut frame = vec![0; FRAME_HEAD];
            self.read(&mut frame).await?;
            let head = frame.first_chunk::<FRAME_HEAD>().expect("the buffer has that length");
            let length = frame_length(head)?;
            frame.resize(length, 0);
            self.read(&mut frame[FRAME_HEAD..]).await?;
            match ControlMessage::decode(&frame)? {
                Some((ControlMessage::Unknown { frame_type }, _)) => {
                    tracing::debug!(frame_type, "control message of an unknown type skipped");
                }
                Some((message, _)) => return Ok(message),
                None => return Err(SessionError::ControlEnded),
            }
        }
    }

    async fn read(&mut self, buffer: &mut [u8]) -> Result<(), SessionError> {
        self.recv.read_exact(buffer).await.map_err(|_| SessionError::ControlEnded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: RefusedReason) -> SessionError {
        let text = "see you\u{1b}[2J".to_owned();
        SessionError::Refused(Refused { reason, versions: VersionRange { min: 7, max: 9 }, relay_time: 0, text })
    }

    #[test]
    fn only_a_refusal_of_this_client_ends_the_trying() {
        for reason in RefusedReason::ALL {
            let temporary = matches!(reason, RefusedReason::Full | RefusedReason::Other);
            assert_eq!(refused(reason).is_final(), !temporary);
            assert_eq!(SessionError::ClosedAsRefused(reason).is_final(), !temporary);
        }
        assert!(!SessionError::NoWelcome.is_final());
    }

    #[test]
    fn a_refusal_names_clocks_and_versions_and_keeps_the_terminal_clean() {
        let text = refused(RefusedReason::Expired).to_string();
        assert!(text.contains("minutes ahead of the relay's") && text.contains("it says: see you[2J"), "{text:?}");
        let text = refused(RefusedReason::Version).to_string();
        assert!(text.contains("it speaks versions 7 to 9, this client version 1"), "{text:?}");
        assert_eq!(clocks(1_000_060, UNIX_EPOCH + Duration::from_secs(1_000_000)), "");
        let text = clocks(1_000_600, UNIX_EPOCH + Duration::from_secs(1_000_000));
        assert_eq!(text, " (this device's clock is 10 minutes behind the relay's)");
    }
}
