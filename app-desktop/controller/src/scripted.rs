//! Engines that tell what a script says: for tests, and to see every screen without a network.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tandem_core::client::control::Request;
use tandem_proto::measure::{Event, Kind};
use tandem_proto::stats::{RelayStats, Snapshot};
use tokio::sync::mpsc;

use crate::engines::{Answer, EngineFault, Engines, Measurement, Start};

/// Events of a measurement that wait to be taken.
const MAX_EVENTS: usize = 16;

/// Engines by script; clones share it.
#[derive(Debug, Clone, Default)]
pub struct ScriptedEngines {
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    /// What the engine that runs tells; `None` while none runs.
    running: Option<Snapshot>,
    /// What one that is started tells, beside its mode and relays.
    to_come: Snapshot,
    /// Why none starts.
    fault: Option<String>,
    /// Whether the one that runs does not stop.
    sticks: bool,
    asked: Vec<Request>,
    /// What the next measurement tells.
    measurement: Option<mpsc::Receiver<Event>>,
    started: Vec<Start>,
}

impl ScriptedEngines {
    /// None runs; those that are started tell this.
    pub fn new(to_come: Snapshot) -> Self {
        let script = Script { to_come, ..Script::default() };
        Self { script: Arc::new(Mutex::new(script)) }
    }

    /// One runs and tells this, or none runs any more.
    pub fn tell(&self, snapshot: Option<Snapshot>) {
        self.script.lock().running = snapshot;
    }

    /// None starts from now on, for this reason.
    pub fn fail(&self, reason: &str) {
        self.script.lock().fault = Some(reason.to_owned());
    }

    /// What the next measurement tells is sent here; closed when it is ended.
    pub fn measurement(&self) -> mpsc::Sender<Event> {
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        self.script.lock().measurement = Some(events);
        sender
    }

    /// What was asked for since the last time, but for snapshots.
    pub fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.script.lock().asked)
    }

    /// The one that runs does not stop any more.
    pub fn stick(&self) {
        self.script.lock().sticks = true;
    }

    /// What engines were started with.
    pub fn started(&self) -> Vec<Start> {
        self.script.lock().started.clone()
    }
}

/// A measurement by script.
struct ScriptedMeasurement(mpsc::Receiver<Event>);

impl Measurement for ScriptedMeasurement {
    fn next(&mut self) -> Answer<'_, Option<Event>> {
        Box::pin(self.0.recv())
    }
}

impl Engines for ScriptedEngines {
    fn ask(&self, request: Request) -> Answer<'_, Result<Option<Snapshot>, EngineFault>> {
        Box::pin(async move {
            let mut script = self.script.lock();
            if request != Request::Status {
                script.asked.push(request.clone());
            }
            let Some(snapshot) = &mut script.running else { return Err(EngineFault::NotRunning) };
            match request {
                Request::Status => return Ok(Some(snapshot.clone())),
                Request::Mode(mode) => snapshot.mode = mode,
                Request::Stop => script.running = None,
                _ => {}
            }
            Ok(None)
        })
    }

    fn measure(&self, what: Kind, seconds: u16) -> Answer<'_, Result<Box<dyn Measurement>, EngineFault>> {
        Box::pin(async move {
            let mut script = self.script.lock();
            script.asked.push(Request::Measure { what, seconds });
            if script.running.is_none() {
                return Err(EngineFault::NotRunning);
            }
            let events = script.measurement.take().ok_or(EngineFault::Refused("nothing is scripted".to_owned()))?;
            Ok(Box::new(ScriptedMeasurement(events)) as Box<dyn Measurement>)
        })
    }

    fn host(&self, start: Start) -> Answer<'_, Result<Option<SocketAddr>, EngineFault>> {
        Box::pin(async move {
            let mut script = self.script.lock();
            if let Some(fault) = &script.fault {
                return Err(EngineFault::Refused(fault.clone()));
            }
            let relay = |name: &String| RelayStats { name: name.clone(), ..RelayStats::default() };
            let mut snapshot = script.to_come.clone();
            snapshot.mode = start.mode.unwrap_or(snapshot.mode);
            snapshot.relays = start.pairings.list().iter().map(|pairing| relay(&pairing.name)).collect();
            let proxy = snapshot.proxy.as_ref().and_then(|proxy| proxy.parse().ok());
            script.running = Some(snapshot);
            script.started.push(start);
            Ok(proxy)
        })
    }

    fn release(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let sticks = self.script.lock().sticks;
            if sticks {
                std::future::pending::<()>().await;
            }
            self.script.lock().running = None;
        })
    }
}
