//! `tandem status --watch`: how the running client stands, drawn anew again and again.
//!
//! On a terminal it takes the whole screen until `q`, Esc, Ctrl-C or SIGTERM, and gives it back, after a panic too. Where
//! standard output is no terminal it prints a line each time ([`mod@line`]), or with `--json` the snapshot as one line. A client
//! that ends while it is watched is waited for: it may be starting again.
//!
//! [`view`] draws, [`columns`] says what of the paths fits, [`history`] remembers the last minute.

mod columns;
mod history;
mod line;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tandem_core::client::control::{self, Request};
use tandem_proto::stats::Snapshot;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::history::History;
use self::view::{Colours, View};
use crate::shutdown::Signals;

/// How often the keyboard's thread looks whether it is still needed.
const KEY_POLL: Duration = Duration::from_millis(100);
/// Key presses and changes of the window's size that wait to be looked at; each makes one drawing.
const MAX_EVENTS: usize = 16;

/// Watches the engine behind the control socket until the user has seen enough.
pub(crate) async fn watch(control: &Path, every: Duration, json: bool) -> anyhow::Result<()> {
    // One that does not run at the beginning is an error like that of `status` alone.
    let first = ask(control).await?;
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    if json || !io::stdout().is_terminal() {
        return tokio::select! {
            done = print_lines(control, every, json) => done,
            () = signals.next() => Ok(()),
        };
    }
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
    let done = tokio::select! {
        done = draw(&mut terminal, control, every, first) => done,
        () = signals.next() => Ok(()),
    };
    ratatui::try_restore().context("the terminal cannot be given back")?;
    done
}

async fn ask(control: &Path) -> anyhow::Result<Snapshot> {
    let snapshot = control::ask(control, &Request::Status).await?;
    snapshot.context("the engine sent no snapshot: it is of another version")
}

async fn draw(terminal: &mut DefaultTerminal, control: &Path, every: Duration, first: Snapshot) -> anyhow::Result<()> {
    let mut keys = keys()?;
    let mut history = History::new(every);
    let mut latest = Ok(first);
    let mut ticks = ticks(every);
    ticks.tick().await;
    history.push(latest.as_ref().ok());
    loop {
        let view = View { latest: latest.as_ref(), history: &history, colours: Colours::from_environment() };
        terminal.draw(|frame| view.render(frame)).context("the terminal cannot be drawn on")?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) if is_enough(key) => return Ok(()),
                Some(_) => {}
                None => return Ok(()),
            },
            _ = ticks.tick() => {
                latest = ask(control).await.map_err(|error| format!("{error:#}"));
                history.push(latest.as_ref().ok());
            }
        }
    }
}

async fn print_lines(control: &Path, every: Duration, json: bool) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut ticks = ticks(every);
    loop {
        ticks.tick().await;
        let text = match (ask(control).await, json) {
            (Ok(snapshot), true) => serde_json::to_string(&snapshot)?,
            (Ok(snapshot), false) => line::of(&snapshot, start.elapsed()),
            (Err(error), true) => serde_json::json!({ "error": format!("{error:#}") }).to_string(),
            (Err(error), false) => format!("{:8.1} s  {error:#}", start.elapsed().as_secs_f64()),
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            // The reader has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            done => done?,
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What happens at the terminal, read by a thread that ends once nobody listens.
fn keys() -> anyhow::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(MAX_EVENTS);
    let read = move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_POLL) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            if event.map(|event| sender.blocking_send(event).is_err()).unwrap_or(true) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read).context("the keyboard cannot be read")?;
    Ok(receiver)
}

fn is_enough(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}
