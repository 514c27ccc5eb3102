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
        drop(self.control);
    }
}
