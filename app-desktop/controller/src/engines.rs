//! Engines as the controller sees them: something that answers at the control socket, wherever it runs.
//!
//! [`LocalEngines`] is the real thing. It hosts the engine that it starts behind the same control socket as `tandem run`
//! does, and asks it through that socket as it would ask one that another program runs: there is one way to an engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::client::EngineConfig;
use tandem_core::client::control::{self, ControlError, Request, Told};
use tandem_core::client::host::Host;
use tandem_core::config::Config;
use tandem_core::platform::Platform;
use tandem_core::secrets::Keeper;
use tandem_proto::measure::{Event, Kind};
use tandem_proto::mode::Mode;
use tandem_proto::pairing::Pairings;
use tandem_proto::stats::Snapshot;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// How long a hosted engine may take to stop: the app ends within three seconds.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Something that takes a while.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an engine is to be started with, beside its configuration file.
#[derive(Debug, Clone)]
pub struct Start {
    /// The relays.
    pub pairings: Pairings,
    /// Where what relays change of their links is kept.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// How to use the networks; `None` leaves it to the configuration file.
    pub mode: Option<Mode>,
}

/// Why an engine did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineFault {
    /// There is none.
    #[error("no client is running")]
    NotRunning,
    /// It did not do what it was asked, or cannot be spoken with.
    #[error("{0}")]
    Refused(String),
}

/// A measurement that runs. Dropped, it ends.
pub trait Measurement: Send {
    /// The next thing it tells; the last but `None` is a report or a failure.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    fn next(&mut self) -> Answer<'_, Option<Event>>;
}

/// Starts, asks and stops engines.
pub trait Engines: Send + Sync + 'static {
    /// Asks the engine that answers at the control socket; a snapshot comes back for [`Request::Status`].
    fn ask(&self, request: Request) -> Answer<'_, Result<Option<Snapshot>, EngineFault>>;

    /// Has the engine that answers at the control socket measure, each transfer for so many seconds.
    fn measure(&self, what: Kind, seconds: u16) -> Answer<'_, Result<Box<dyn Measurement>, EngineFault>>;

    /// Starts an engine in this process; answers with where its proxy listens.
    fn host(&self, start: Start) -> Answer<'_, Result<Option<SocketAddr>, EngineFault>>;

    /// Stops the engine that runs in this process, if there is one.
    fn release(&self) -> Answer<'_, ()>;
}

/// The engines of this user on this machine.
pub struct LocalEngines {
    control: PathBuf,
    config: Option<PathBuf>,
    platform: Arc<dyn Platform>,
    hosted: Arc<Mutex<Option<Hosted>>>,
}

struct Hosted {
    host: Host,
    /// Stops it when someone asks for that at the control socket.
    watch: AbortOnDropHandle<()>,
}

impl LocalEngines {
    /// Behind this control socket; those that it starts get their settings from this configuration file.
    pub fn new(control: PathBuf, config: Option<PathBuf>, platform: Arc<dyn Platform>) -> Self {
        Self { control, config, platform, hosted: Arc::default() }
    }

    fn engine_config(&self, start: Start) -> Result<EngineConfig, EngineFault> {
        let file = self.config.as_deref().map(Config::load).transpose().map_err(|error| refused(&error))?;
        let mut config = EngineConfig::from_file(&start.pairings, file.unwrap_or_default());
        config.keeper = start.keeper;
        config.mode = start.mode.unwrap_or(config.mode);
        Ok(config)
    }
}

impl Engines for LocalEngines {
    fn ask(&self, request: Request) -> Answer<'_, Result<Option<Snapshot>, EngineFault>> {
        Box::pin(async move { control::ask(&self.control, &request).await.map_err(fault) })
    }

    fn measure(&self, what: Kind, seconds: u16) -> Answer<'_, Result<Box<dyn Measurement>, EngineFault>> {
        Box::pin(async move {
            let told = Told::<Event>::of(&self.control, what, seconds).await.map_err(fault)?;
            Ok(Box::new(told) as Box<dyn Measurement>)
        })
    }

    fn host(&self, start: Start) -> Answer<'_, Result<Option<SocketAddr>, EngineFault>> {
        Box::pin(async move {
            let config = self.engine_config(start)?;
            let mut hosted = self.hosted.lock().await;
            let host = Host::start(config, Arc::clone(&self.platform), &self.control).await;
            let host = host.map_err(|error| refused(&error))?;
            let (proxy, handle) = (host.proxy_address(), host.handle());
            let here = Arc::clone(&self.hosted);
            let watch = AbortOnDropHandle::new(tokio::spawn(async move {
                handle.stop_requested().await;
                stop(&here).await;
            }));
            *hosted = Some(Hosted { host, watch });
            Ok(proxy)
        })
    }

    fn release(&self) -> Answer<'_, ()> {
        Box::pin(stop(&self.hosted))
    }
}

impl Measurement for Told<Event> {
    fn next(&mut self) -> Answer<'_, Option<Event>> {
        Box::pin(async move { self.next().await.unwrap_or_else(|error| Some(Event::Failed(chain(&error)))) })
    }
}

async fn stop(hosted: &Mutex<Option<Hosted>>) {
    let mut hosted = hosted.lock().await;
    let Some(Hosted { host, watch }) = hosted.take() else { return };
    // It may be the one who stops here.
    watch.detach();
    if timeout(STOP_LIMIT, host.stop()).await.is_err() {
        tracing::info!("connections that were still open were cut");
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn fault(error: ControlError) -> EngineFault {
    match error {
        ControlError::NotRunning(_) => EngineFault::NotRunning,
        ControlError::Engine(said) => EngineFault::Refused(said),
        other => refused(&other),
    }
}

fn refused(error: &dyn std::error::Error) -> EngineFault {
    EngineFault::Refused(chain(error))
}
