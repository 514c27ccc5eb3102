//! A static forward: whoever connects is joined to one fixed target.
//!
//! The protocol has no words for a failure, so a connection whose flow cannot be opened is reset.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use tandem_proto::wire::flow::{Target, TargetError};
use tokio::net::TcpStream;

use super::Shared;
use crate::pump::{TcpLike, pump_counted};

/// A local address and the target behind it, written `LISTEN=TARGET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where connections are taken.
    pub listen: SocketAddr,
    /// Where they go.
    pub target: Target,
}

/// Why a text is no [`Forward`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// No `=`.
    #[error("forward {0:?} is wrong: write LISTEN=TARGET, for example 127.0.0.1:8080=example.org:80")]
    Form(String),
    /// The left side.
    #[error("listen address {0:?} of the forward is wrong: write ADDRESS:PORT, for example 127.0.0.1:8080")]
    Listen(String),
    /// The right side.
    #[error("target of the forward is wrong: {0}")]
    Target(TargetError),
}

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (listen, target) = text.split_once('=').ok_or_else(|| ForwardError::Form(text.to_owned()))?;
        Ok(Self {
            listen: listen.parse().map_err(|_| ForwardError::Listen(listen.to_owned()))?,
            target: target.parse().map_err(ForwardError::Target)?,
        })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.listen, self.target)
    }
}

pub(super) async fn serve(tcp: TcpStream, target: &Target, shared: &Shared) {
    tcp.reset_on_drop(true);
    if let Some(Ok(flow)) = shared.open(&tcp, target).await {
        let stats = pump_counted(flow, tcp, shared.flows.count()).await;
        tracing::debug!(%target, ?stats, "flow ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_reads_back_from_its_own_text() {
        for text in ["127.0.0.1:8080=example.org:80", "[::1]:1=[2001:db8::1]:2"] {
            assert_eq!(text.parse::<Forward>().map(|forward| forward.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_wrong_forward_is_refused_with_the_side_that_is_wrong() {
        let error = |text: &str| text.parse::<Forward>().unwrap_err();
        assert!(matches!(error("127.0.0.1:8080"), ForwardError::Form(_)));
        assert!(matches!(error("8080=example.org:80"), ForwardError::Listen(_)));
        assert!(matches!(error("127.0.0.1:8080=example.org"), ForwardError::Target(_)));
    }
}
