//! An engine with its control socket: what every program that runs a client starts, so that all of them can be asked and
//! steered in the same way.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::control::{ControlError, ControlServer};
use super::{Engine, EngineConfig, EngineError, EngineHandle};
use crate::platform::Platform;

/// A running client that answers at its control socket. Dropping it ends everything at once.
pub struct Host {
    engine: Engine,
    control: AbortOnDropHandle<()>,
}

/// Why a client did not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The control socket cannot be listened on, as a rule because another client runs.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The engine did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Host {
    /// Starts an engine that answers at the control socket `control`.
    ///
    /// # Errors
    /// [`HostError`]; nothing runs then.
    pub async fn start(config: EngineConfig, platform: Arc<dyn Platform>, control: &Path) -> Result<Self, HostError> {
        // The socket first: two clients that start at once do not both open the proxy.
        let server = ControlServer::bind(control).await?;
        let engine = Engine::start(config, platform).await?;
        let control = AbortOnDropHandle::new(tokio::spawn(server.serve(engine.handle())));
        Ok(Self { engine, control })
    }

    /// Where the proxy listens.
    pub fn proxy_address(&self) -> Option<SocketAddr> {
        self.engine.proxy_address()
    }

    /// Something to ask and steer the engine with.
    pub fn handle(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Stops as [`Engine::stop`] does; until that is done the control socket answers.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it ends everything at once.
    pub async fn stop(self) {
        self.engine.stop().await;
        self.control.abort();
        // Until it is gone, another client that starts here finds this one alive.
        let _ = self.control.await;
    }
}

#[cfg(test)]
mod tests {
    use tandem_proto::pairing::{PairingLink, Secret};

    use super::*;
    use crate::platform::Scripted;

    /// As when a user pairs with another relay: the client stops, and another one starts at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_that_has_stopped_is_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control.sock");
        let link = PairingLink {
            relays: vec!["192.0.2.1:4433".parse().unwrap()],
            pins: vec![[7; 32]],
            token: Secret::new("v4.public.abc".to_owned()),
            name: String::new(),
        };
        for start in 0..200 {
            let config = EngineConfig { listen: None, ..EngineConfig::new(link.clone()) };
            let host = Host::start(config, Arc::new(Scripted::new(Vec::new())), &control).await;
            let host = host.unwrap_or_else(|error| panic!("start {start}: {error}"));
            host.stop().await;
        }
    }
}
