//! Servers in memory, for a relay in virtual time.
//!
//! [`Origins`] stands where the relay's real egress stands: it connects by the exact text of a target, `name:port`. What is
//! not there is not found. Access rules are the real egress's business and are tested with it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tandem_core::pump::memory::{MemoryTcp, pair};
use tandem_proto::wire::flow::{OpenError, Target};
use tandem_relay::egress::Egress;

/// Bytes that each direction of a connection holds: as much as a kernel's send and receive buffer together start with.
const WINDOW_BYTES: usize = 256 * 1024;

type Serve = dyn Fn(MemoryTcp) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// An egress to servers in memory.
#[derive(Default)]
pub struct Origins {
    known: BTreeMap<String, Origin>,
}

enum Origin {
    Serves(Box<Serve>),
    Fails(OpenError),
    Silent,
}

impl Origins {
    /// No server anywhere.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server at `target`; each connection to it is one run of `serve` on a task of its own.
    #[must_use]
    pub fn with<F>(mut self, target: &str, serve: impl Fn(MemoryTcp) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve = Box::new(move |tcp| Box::pin(serve(tcp)) as Pin<Box<dyn Future<Output = ()> + Send>>);
        self.known.insert(target.to_owned(), Origin::Serves(serve));
        self
    }

    /// Adds a target to which connecting fails.
    #[must_use]
    pub fn failing(mut self, target: &str, error: OpenError) -> Self {
        self.known.insert(target.to_owned(), Origin::Fails(error));
        self
    }

    /// Adds a target that never answers; connecting to it never ends.
    #[must_use]
    pub fn silent(mut self, target: &str) -> Self {
        self.known.insert(target.to_owned(), Origin::Silent);
        self
    }
}

impl Egress for Origins {
    type Connection = MemoryTcp;

    async fn connect(&self, target: &Target) -> Result<MemoryTcp, OpenError> {
        match self.known.get(&target.to_string()) {
            Some(Origin::Serves(serve)) => {
                let (relay_end, server_end) = pair(WINDOW_BYTES);
                tokio::spawn(serve(server_end));
                Ok(relay_end)
            }
            Some(Origin::Fails(error)) => Err(*error),
            Some(Origin::Silent) => std::future::pending().await,
            None => Err(OpenError::NameNotFound),
        }
    }
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::virtual_time::run;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn a_known_target_is_served_and_any_other_is_not_found() {
        run(async {
            let origins = Origins::new().with("example.org:80", |mut tcp| async move {
                tcp.write_all(b"hello").await.unwrap();
                tcp.shutdown().await.unwrap();
            });
            let mut tcp = origins.connect(&target("example.org:80")).await.unwrap();
            let mut answer = String::new();
            tcp.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "hello");
            assert_eq!(origins.connect(&target("example.org:81")).await.unwrap_err(), OpenError::NameNotFound);
        });
    }

    #[test]
    fn targets_can_fail_and_be_silent() {
        run(async {
            let origins = Origins::new().failing("192.0.2.1:1", OpenError::Refused).silent("192.0.2.2:1");
            assert_eq!(origins.connect(&target("192.0.2.1:1")).await.unwrap_err(), OpenError::Refused);
            let silent = target("192.0.2.2:1");
            assert!(tokio::time::timeout(Duration::from_secs(60), origins.connect(&silent)).await.is_err());
        });
    }
}
