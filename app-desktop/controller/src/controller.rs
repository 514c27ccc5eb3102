//! The one place where the app's state changes: takes what the user asks, watches the engine, and says what is shown.
//!
//! [`Controller::run`] is a task that does one thing after the other. It looks at the engine four times a second while the
//! window is shown and once while it is hidden, and publishes a new [`State`] only if something changed. Whoever wants
//! something has a [`Handle`].

mod measuring;
mod proxy;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tandem_core::client::control::Request;
use tandem_core::secrets::{Keeper, SecretError};
use tandem_proto::events::Watcher;
use tandem_proto::pairing::Pairings;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::engines::{EngineFault, Engines, Measurement, Start, chain};
use crate::handle::{Handle, Refusal, RefusalKind, Reply, Wish, other};
use crate::history::History;
use crate::links::{Change, Links};
use crate::notice::{self, Notice};
use crate::runs::Runs;
use crate::settings::{Chosen, Settings, SettingsFile};
use crate::state::{Condition, Life, State, relays};
use crate::system_proxy::SystemProxy;

/// How often the engine is looked at while the window is shown.
const SHOWN: Duration = Duration::from_millis(250);
/// How often while it is hidden; also how often a sample is kept.
const HIDDEN: Duration = Duration::from_secs(1);
/// Wishes that wait; a user makes one at a time.
const MAX_WISHES: usize = 16;
/// Notifications that wait to be shown; more are dropped.
const MAX_NOTICES: usize = 16;

/// What the controller works with.
pub struct Parts {
    /// Engines.
    pub engines: Arc<dyn Engines>,
    /// Pairings.
    pub links: Arc<dyn Links>,
    /// Keeps what relays change of their links.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Where the user's choices are kept.
    pub settings: SettingsFile,
    /// Where what was measured is kept.
    pub runs: PathBuf,
    /// The desktop's proxy settings.
    pub system_proxy: Arc<SystemProxy>,
}

/// See the module.
pub struct Controller {
    parts: Parts,
    wishes: mpsc::Receiver<(Wish, Reply)>,
    state: watch::Sender<State>,
    history: Arc<Mutex<History>>,
    runs: Arc<Mutex<Runs>>,
    measurement: Option<Box<dyn Measurement>>,
    notices: mpsc::Sender<Notice>,
    watcher: Watcher,
    pairings: Pairings,
    shown: bool,
    /// Where the desktop's settings lead now.
    led_to: Option<SocketAddr>,
    sampled: Option<Instant>,
}

impl Controller {
    /// A controller that is to be [`run`](Controller::run), its handle, and what is to be told as notifications.
    pub fn new(parts: Parts) -> (Self, Handle, mpsc::Receiver<Notice>) {
        let (wish_sender, wishes) = mpsc::channel(MAX_WISHES);
        let (notices, told) = mpsc::channel(MAX_NOTICES);
        let history = Arc::<Mutex<History>>::default();
        let starting = State { life: Life::Starting, condition: Condition::Starting, ..State::default() };
        let (state, states) = watch::channel(starting);
        let runs = Arc::<Mutex<Runs>>::default();
        let (links, (history_of_handle, runs_of_handle)) =
            (Arc::clone(&parts.links), (Arc::clone(&history), Arc::clone(&runs)));
        let handle =
            Handle { wishes: wish_sender, state: states, history: history_of_handle, runs: runs_of_handle, links };
        let controller = Self {
            parts,
            wishes,
            state,
            history,
            runs,
            measurement: None,
            notices,
            watcher: Watcher::default(),
            pairings: Pairings::default(),
            shown: false,
            led_to: None,
            sampled: None,
        };
        (controller, handle, told)
    }

    /// Begins as the settings say, and goes on until [`Wish::Quit`] is done or nobody has a handle.
    pub async fn run(mut self) {
        self.begin().await;
        let mut look_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                wish = self.wishes.recv() => {
                    let Some((wish, reply)) = wish else { return self.end().await };
                    let quits = wish == Wish::Quit;
                    let done = self.fulfil(wish).await;
                    if let Err(refusal) = &done {
                        tracing::warn!(refusal = refusal.text, "not done");
                    }
                    // Whoever asked may not care any more.
                    let _ = reply.send(done);
                    if quits {
                        return;
                    }
                    look_at = Instant::now();
                }
                event = measuring::next(&mut self.measurement) => self.measured(event).await,
                () = sleep_until(look_at) => {
                    self.look().await;
                    look_at = Instant::now() + if self.shown { SHOWN } else { HIDDEN };
                }
            }
        }
    }

    async fn begin(&mut self) {
        let settings = self.parts.settings.load();
        // One that cannot be read is told, and written over only when the user changes something.
        let fault = settings.as_ref().err().map(|error| chain(error));
        self.change(|state| {
            state.settings = settings.unwrap_or_default();
            state.fault = fault;
        });
        let desktop = self.parts.system_proxy.desktop().map(str::to_owned);
        self.change(|state| state.system_proxy.desktop = desktop);
        // What a crash has left behind.
        self.restore_proxy().await;
        self.load_runs().await;
        self.load_links().await;
        self.look().await;
        let state = self.state.borrow().clone();
        if state.life != Life::On && state.settings.connect_at_start && !self.pairings.is_empty() {
            // The state tells why, if it fails.
            let _ = self.connect().await;
        } else if state.life != Life::On {
            self.change(|state| state.life = Life::Off);
        }
    }

    async fn fulfil(&mut self, wish: Wish) -> Result<(), Refusal> {
        match wish {
            Wish::Connect => self.connect().await,
            Wish::Disconnect => self.disconnect().await,
            Wish::Mode(mode) => {
                if self.is_on() {
                    self.ask(Request::Mode(mode)).await?;
                }
                let settings = Settings { mode: Some(Chosen { mode }), ..self.settings() };
                self.keep(settings)
            }
            Wish::SetNetwork { network, setting, value } => self.ask(Request::Set { network, setting, value }).await,
            Wish::Pair { link, name, allow_file } => {
                let add = move |pairings: &mut Pairings| pairings.add(link, name.as_deref()).map(drop);
                self.change_links(allow_file, Box::new(add)).await?;
                if self.is_on() { self.start_again().await } else { self.connect().await }
            }
            Wish::Rename { from, to } => {
                self.change_links(true, Box::new(move |pairings| pairings.rename(&from, &to))).await
            }
            Wish::Remove(name) => {
                self.change_links(true, Box::new(move |pairings| pairings.remove(&name).map(drop))).await?;
                self.start_again().await
            }
            Wish::Prefer(name) => {
                self.change_links(true, Box::new(move |pairings| pairings.prefer(name.as_deref()))).await?;
                self.start_again().await
            }
            Wish::Measure { what, seconds } => self.measure(what, seconds).await,
            Wish::CancelMeasuring => {
                self.measure_no_more(None);
                Ok(())
            }
            Wish::Settings(settings) => {
                let mode = self.settings().mode;
                self.keep(Settings { mode, ..settings })?;
                self.lead_proxy().await;
                Ok(())
            }
            Wish::Shown(shown) => {
                self.shown = shown;
                Ok(())
            }
            Wish::Quit => {
                self.end().await;
                Ok(())
            }
        }
    }

    /// Starts an engine here, unless one answers already.
    async fn connect(&mut self) -> Result<(), Refusal> {
        self.look().await;
        if self.is_on() {
            return Ok(());
        }
        self.change(|state| (state.life, state.fault) = (Life::Starting, None));
        let start = Start {
            pairings: self.pairings.clone(),
            keeper: self.parts.keeper.clone(),
            mode: self.settings().mode.map(|chosen| chosen.mode),
        };
        match self.parts.engines.host(start).await {
            Ok(_) => {
                self.change(|state| (state.life, state.elsewhere) = (Life::On, false));
                self.look().await;
                Ok(())
            }
            Err(fault) => {
                let text = fault.to_string();
                self.change(|state| (state.life, state.fault) = (Life::Off, Some(text.clone())));
                Err(other(text))
            }
        }
    }

    async fn disconnect(&mut self) -> Result<(), Refusal> {
        self.restore_proxy().await;
        if self.state.borrow().elsewhere {
            self.ask(Request::Stop).await?;
        } else {
            self.change(|state| state.life = Life::Stopping);
            self.parts.engines.release().await;
        }
        self.gone();
        Ok(())
    }

    /// An engine of this process begins anew with the pairings that there are now. One of another program takes them when it
    /// starts the next time.
    async fn start_again(&mut self) -> Result<(), Refusal> {
        let hosts = self.is_on() && !self.state.borrow().elsewhere;
        if !hosts {
            return Ok(());
        }
        self.disconnect().await?;
        if self.pairings.is_empty() { Ok(()) } else { self.connect().await }
    }

    async fn end(&mut self) {
        self.measure_no_more(None);
        self.change(|state| state.life = Life::Stopping);
        let engines = Arc::clone(&self.parts.engines);
        // Both at once: quitting is to be quick.
        tokio::join!(engines.release(), self.restore_proxy());
        self.gone();
    }

    /// Looks at the engine, and follows from what it tells.
    async fn look(&mut self) {
        let snapshot = match self.parts.engines.ask(Request::Status).await {
            Ok(snapshot) => snapshot,
            Err(EngineFault::NotRunning) => {
                if self.is_on() {
                    self.restore_proxy().await;
                    self.gone();
                }
                return self.sample();
            }
            // It may answer the next time.
            Err(fault) => {
                let text = fault.to_string();
                return self.change(|state| state.fault = Some(text));
            }
        };
        let Some(snapshot) = snapshot else { return };
        for event in self.watcher.see(&snapshot, Instant::now().into_std()) {
            tracing::info!(%event, "the client tells");
            if self.settings().notify
                && let Some(notice) = notice::of(&event)
            {
                // Nobody can read more than wait already.
                let _ = self.notices.try_send(notice);
            }
        }
        self.change(|state| {
            // One that was not started here.
            state.elsewhere |= state.life != Life::On;
            (state.life, state.fault) = (Life::On, None);
            state.snapshot = Some(snapshot);
        });
        self.lead_proxy().await;
        self.sample();
    }

    /// Keeps a sample a second.
    fn sample(&mut self) {
        let now = Instant::now();
        if self.sampled.is_none_or(|at| now.saturating_duration_since(at) >= HIDDEN - SHOWN / 2) {
            self.sampled = Some(now);
            let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            self.history.lock().push(self.state.borrow().snapshot.as_ref(), unix_s);
        }
    }

    /// There is no engine any more.
    fn gone(&mut self) {
        self.watcher = Watcher::default();
        self.change(|state| {
            (state.life, state.elsewhere, state.snapshot) = (Life::Off, false, None);
        });
    }

    async fn load_links(&mut self) {
        let links = Arc::clone(&self.parts.links);
        match spawn_blocking(move || links.load()).await {
            Ok(Ok((pairings, kept))) => {
                let (shown, kept) = (relays(&pairings), kept.map(|kept| kept.to_string()));
                self.pairings = pairings;
                self.change(|state| (state.relays, state.kept, state.kept_problem) = (shown, kept, None));
            }
            Ok(Err(error)) => {
                let text = chain(&error);
                self.change(|state| state.kept_problem = Some(text));
            }
            // The runtime is ending.
            Err(_) => {}
        }
    }

    async fn change_links(&mut self, allow_file: bool, change: Change) -> Result<(), Refusal> {
        let links = Arc::clone(&self.parts.links);
        let done = spawn_blocking(move || links.change(allow_file, change)).await;
        let done = done.map_err(|_| other("the app is ending".to_owned()))?;
        self.load_links().await;
        done.map_err(|error| {
            let kind = match error {
                SecretError::Keychain(_) | SecretError::KeychainSilent => RefusalKind::NoKeychain,
                _ => RefusalKind::Other,
            };
            Refusal { kind, text: chain(&error) }
        })
    }

    async fn ask(&mut self, request: Request) -> Result<(), Refusal> {
        self.parts.engines.ask(request).await.map(drop).map_err(|fault| other(fault.to_string()))
    }

    fn keep(&mut self, settings: Settings) -> Result<(), Refusal> {
        let kept = self.parts.settings.save(&settings);
        self.change(|state| state.settings = settings);
        kept.map_err(|error| other(chain(&error)))
    }

    fn is_on(&self) -> bool {
        self.state.borrow().life == Life::On
    }

    fn settings(&self) -> Settings {
        self.state.borrow().settings.clone()
    }

    /// Publishes a state if it is another.
    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_if_modified(|state| {
            let before = state.clone();
            change(state);
            state.condition = Condition::of(state);
            *state != before
        });
    }
}

#[cfg(test)]
mod tests;
