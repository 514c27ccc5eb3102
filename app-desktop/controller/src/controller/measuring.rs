//! Has the engine measure, one thing at a time, and keeps what comes of it.

use std::future::pending;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tandem_proto::measure::{Event, Kind};
use tokio::task::spawn_blocking;

use super::Controller;
use crate::engines::{EngineFault, Measurement};
use crate::handle::{Refusal, other};
use crate::runs::{Report, Runs};
use crate::state::Running;

/// Why a measurement that was not done ended.
const STOPPED: &str = "the client stopped before the measurement was done";

impl Controller {
    /// Reads what was measured before.
    pub(super) async fn load_runs(&mut self) {
        let path = self.parts.runs.clone();
        // It fails only while the runtime ends.
        let Ok((runs, problem)) = spawn_blocking(move || Runs::load(&path)).await else { return };
        let (latest, problem) = (runs.latest(), problem.map(|problem| problem.words()));
        *self.runs.lock() = runs;
        self.change(|state| (state.measuring.latest, state.measuring.kept_problem) = (latest, problem));
    }

    pub(super) async fn measure(&mut self, what: Kind, seconds: u16) -> Result<(), Refusal> {
        if self.measurement.is_some() {
            return Err(other("a measurement is running already".to_owned()));
        }
        let begun = self.parts.engines.measure(what, seconds).await;
        let measurement = begun.map_err(|fault| match fault {
            EngineFault::NotRunning => other("Tandem is off: connect first".to_owned()),
            fault @ EngineFault::Refused(_) => other(fault.to_string()),
        })?;
        self.measurement = Some(measurement);
        self.change(|state| {
            state.measuring.running = Some(Running { what, seconds, progress: None });
            state.measuring.problem = None;
        });
        Ok(())
    }

    /// Ends what is being measured, if anything is.
    pub(super) fn measure_no_more(&mut self, problem: Option<&str>) {
        if self.measurement.take().is_some() {
            let problem = problem.map(str::to_owned);
            self.change(|state| (state.measuring.running, state.measuring.problem) = (None, problem));
        }
    }

    /// Takes what the measurement tells; `None` if it tells no more.
    pub(super) async fn measured(&mut self, event: Option<Event>) {
        let report = match event {
            Some(Event::Progress(progress)) => {
                return self.change(|state| {
                    if let Some(running) = &mut state.measuring.running {
                        running.progress = Some(progress);
                    }
                });
            }
            Some(Event::Speed(report)) => Report::Speed(report),
            Some(Event::Fairness(report)) => Report::Fairness(report),
            Some(Event::Failed(why)) => return self.measure_no_more(Some(&why)),
            None => return self.measure_no_more(Some(STOPPED)),
        };
        self.measure_no_more(None);
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let runs = Arc::clone(&self.runs);
        let added = spawn_blocking(move || {
            let mut runs = runs.lock();
            (runs.add(report, unix_s), runs.latest())
        });
        // It fails only while the runtime ends.
        let Ok((kept, latest)) = added.await else { return };
        let problem = kept.err().map(|error| error.words());
        self.change(|state| (state.measuring.latest, state.measuring.kept_problem) = (latest, problem));
    }
}

/// What a measurement tells next; never, if there is none.
///
/// # Cancel safety
/// Nothing is lost.
pub(super) async fn next(measurement: &mut Option<Box<dyn Measurement>>) -> Option<Event> {
    match measurement {
        Some(measurement) => measurement.next().await,
        None => pending().await,
    }
}
