//! A [`Dial`] without a relay: it connects to the target itself, so that inbounds can be tested alone.
//!
//! Each flow is one end of a pair in memory whose other end a pump joins to the target's TCP connection, as a relay would.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tandem_proto::wire::flow::{Host, OpenError, Target};
use tokio::net::TcpStream;

use super::{Dial, DialError, Flow, memory};
use crate::pump::pump;

/// Bytes under way per direction of a flow.
const WINDOW_BYTES: usize = 256 * 1024;

/// Connects to targets from this machine. Names are looked up in `names` only, never by a resolver.
#[derive(Default)]
pub(crate) struct Loopback {
    /// Names and the addresses they stand for.
    pub(crate) names: Vec<(String, std::net::IpAddr)>,
}

impl Dial for Loopback {
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(async move {
            let ip = match &target.host {
                Host::Ip(ip) => *ip,
                Host::Name(name) => {
                    self.names.iter().find(|(known, _)| known == name).ok_or(OpenError::NameNotFound)?.1
                }
            };
            let tcp = TcpStream::connect((ip, target.port)).await.map_err(|error| open_error(&error))?;
            let (near, far, _line) = memory::pair(WINDOW_BYTES);
            tokio::spawn(pump(far, tcp));
            Ok(near)
        })
    }
}

fn open_error(error: &io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => OpenError::Refused,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => OpenError::NoRoute,
        io::ErrorKind::TimedOut => OpenError::TimedOut,
        _ => OpenError::Internal,
    }
}
