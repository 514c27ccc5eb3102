//! The control socket: how other processes of the same user ask and steer a running engine.
//!
//! A request is one line of JSON, and so is its answer: `{"command":"status"}` gets `{"ok":{...}}` with the snapshot,
//! `{"command":"mode","mode":"bicast","bicast":"both"}` and `{"command":"stop"}` get `{"ok":null}`; whatever fails gets
//! `{"error":"..."}`. A connection may ask any number of times, but for `{"command":"events"}` and
//! `{"command":"measure","what":"speed","seconds":5}`: after `{"ok":null}` it gets a line for every event, until one of the
//! two has enough.
//!
//! The socket is a file that its owner alone can use (mode 0600, and the peer's user is checked) in the user's runtime
//! directory; on Windows a named pipe that its owner alone can open. One left behind by a crash is replaced; a living one
//! is respected.

#[cfg_attr(unix, path = "control/unix.rs")]
#[cfg_attr(not(unix), path = "control/windows.rs")]
mod local;

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::{Listener as _, Stream as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tandem_proto::events::{TimedEvent, Watcher};
use tandem_proto::measure::Kind;
use tandem_proto::mode::Mode;
use tandem_proto::stats::Snapshot;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{EngineHandle, Measurement};

/// The longest request, in bytes.
const MAX_REQUEST: u64 = 4096;
/// The longest answer, in bytes; a snapshot with all its paths is far below.
const MAX_ANSWER: u64 = 1024 * 1024;
/// How long an engine may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long a peer may be silent before its connection is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Connections served at a time; more wait.
const MAX_CONNECTIONS: usize = 16;
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What can be asked of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Request {
    /// The snapshot.
    Status,
    /// Use the paths in this mode from now on.
    Mode(Mode),
    /// Something is said of a network, see [`tandem_proto::networks::Settings`].
    Set {
        /// The interface's name.
        network: String,
        /// Which setting.
        setting: String,
        /// Its value, as a text.
        value: String,
    },
    /// What was said of a network by `Set` is forgotten.
    Reset {
        /// The interface's name.
        network: String,
    },
    /// Tell what happens from now on.
    Events,
    /// Measure, see [`tandem_proto::measure`], and tell how far it is and what comes of it.
    Measure {
        /// What.
        what: Kind,
        /// How long each transfer takes, 1 to 60.
        seconds: u16,
    },
    /// Stop the engine.
    Stop,
}

/// The longest name of a network that is taken.
const MAX_NETWORK: usize = 64;
/// Networks of which something may be said by command.
const MAX_NETWORKS: usize = 64;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(Option<Box<Snapshot>>),
    Error(String),
}

/// Why the control socket could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another engine answers there.
    #[error("another client is running with the control socket {0}: stop it, or give this one its own (--control)")]
    InUse(PathBuf),
    /// Nothing answers there.
    #[error("no client is running (no answer at {0}): start one with `tandem run`")]
    NotRunning(PathBuf),
    /// The machine names no place for it.
    #[error("there is no runtime or home directory for the control socket: name one (--control)")]
    NoPlace,
    /// The operating system refused.
    #[error("the control socket {path} cannot be used")]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The engine answered with an error.
    #[error("the client answered: {0}")]
    Engine(String),
}

/// The control socket of this user's engine.
///
/// # Errors
/// [`ControlError::NoPlace`].
pub fn default_path() -> Result<PathBuf, ControlError> {
    local::default_path().ok_or(ControlError::NoPlace)
}

/// A control socket that is listened on.
pub struct ControlServer {
    listener: Listener,
    path: PathBuf,
}

impl ControlServer {
    /// Listens at `path`, in place of a socket that nobody answers at.
    ///
    /// # Errors
    /// [`ControlError::InUse`] while another engine is alive there.
    pub async fn bind(path: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Io { path: path.to_owned(), source };
        if connect(path).await.is_ok() {
            return Err(ControlError::InUse(path.to_owned()));
        }
        local::make_way(path).map_err(failed)?;
        let listener = local::listen(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers until dropped.
    pub async fn serve(self, engine: EngineHandle) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok(stream) if local::is_same_user(&stream, &self.path) => {
                        connections.spawn(answer_all(stream, engine.clone()));
                    }
                    Ok(_) => tracing::warn!("another user's process was turned away from the control socket"),
                    Err(error) => {
                        tracing::warn!(%error, "accepting a control connection failed");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Asks the engine at `path`; answers with the snapshot for [`Request::Status`].
///
/// # Errors
/// [`ControlError::NotRunning`] if nothing answers, and others as they say.
pub async fn ask(path: &Path, request: &Request) -> Result<Option<Snapshot>, ControlError> {
    let failed = |source| ControlError::Io { path: path.to_owned(), source };
    let stream = reach(path).await?;
    let (reader, mut writer) = (&stream, &stream);
    let exchange = async {
        let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
        line.push(b'\n');
        writer.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(reader.take(MAX_ANSWER)).read_line(&mut answer).await?;
        serde_json::from_str(&answer).map_err(io::Error::other)
    };
    let answer = timeout(ANSWER_LIMIT, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match answer.map_err(failed)? {
        Answer::Ok(snapshot) => Ok(snapshot.map(|snapshot| *snapshot)),
        Answer::Error(error) => Err(ControlError::Engine(error)),
    }
}

/// What an engine tells, a line each, until one of the two has enough.
pub struct Told<T> {
    lines: Lines<BufReader<Stream>>,
    path: PathBuf,
    of: PhantomData<T>,
}

/// What happens to an engine, as it tells it.
pub type Events = Told<TimedEvent>;

impl Told<TimedEvent> {
    /// Begins to listen to the engine at `path`.
    ///
    /// # Errors
    /// As [`ask`].
    pub async fn of(path: &Path) -> Result<Self, ControlError> {
        Self::begin(path, &Request::Events).await
    }
}

impl Told<tandem_proto::measure::Event> {
    /// Has the engine at `path` measure. Dropped, it ends that.
    ///
    /// # Errors
    /// As [`ask`].
    pub async fn of(path: &Path, what: Kind, seconds: u16) -> Result<Self, ControlError> {
        Self::begin(path, &Request::Measure { what, seconds }).await
    }
}

impl<T: DeserializeOwned> Told<T> {
    async fn begin(path: &Path, request: &Request) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Io { path: path.to_owned(), source };
        let stream = reach(path).await?;
        let begin = async {
            let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
            line.push(b'\n');
            (&stream).write_all(&line).await?;
            let mut lines = BufReader::new(stream).lines();
            Ok::<_, io::Error>((lines.next_line().await?.unwrap_or_default(), lines))
        };
        let begun = timeout(ANSWER_LIMIT, begin).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (answer, lines) = begun.map_err(failed)?;
        match serde_json::from_str(&answer).map_err(|error| failed(io::Error::other(error)))? {
            Answer::Ok(_) => Ok(Self { lines, path: path.to_owned(), of: PhantomData }),
            Answer::Error(error) => Err(ControlError::Engine(error)),
        }
    }

    /// The next thing told; `None` at the end.
    ///
    /// # Errors
    /// [`ControlError::Io`].
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn next(&mut self) -> Result<Option<T>, ControlError> {
        let failed = |source| ControlError::Io { path: self.path.clone(), source };
        match self.lines.next_line().await.map_err(failed)? {
            Some(line) => serde_json::from_str(&line).map(Some).map_err(|error| failed(io::Error::other(error))),
            None => Ok(None),
        }
    }
}

async fn reach(path: &Path) -> Result<Stream, ControlError> {
    connect(path).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::NotRunning(path.to_owned()),
        _ => ControlError::Io { path: path.to_owned(), source: error },
    })
}

async fn connect(path: &Path) -> io::Result<Stream> {
    Stream::connect(local::name(path)?).await
}

/// Serves one connection until it ends, errs or falls silent.
async fn answer_all(stream: Stream, engine: EngineHandle) {
    let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(MAX_REQUEST);
        match timeout(IDLE_LIMIT, limited.read_until(b'\n', &mut line)).await {
            Ok(Ok(length)) if length > 0 => {}
            _ => return,
        }
        let whole = line.ends_with(b"\n");
        let answer = match serde_json::from_slice(&line) {
            _ if !whole => Answer::Error(format!("a request is one line of at most {MAX_REQUEST} bytes")),
            Ok(Request::Events) => {
                if writer.write_all(b"{\"ok\":null}\n").await.is_ok() {
                    tell_events(&mut reader, &mut writer, &engine).await;
                }
                return;
            }
            Ok(Request::Measure { what, seconds }) => {
                if writer.write_all(b"{\"ok\":null}\n").await.is_ok() {
                    tell_measurement(&mut reader, &mut writer, engine.measure(what, seconds)).await;
                }
                return;
            }
            Ok(request) => match carry_out(&engine, request) {
                Ok(snapshot) => Answer::Ok(snapshot.map(Box::new)),
                Err(error) => Answer::Error(error),
            },
            Err(error) => Answer::Error(format!("no request: {error}")),
        };
        let Ok(mut bytes) = serde_json::to_vec(&answer) else {
            return;
        };
        bytes.push(b'\n');
        if writer.write_all(&bytes).await.is_err() || !whole {
            return;
        }
    }
}

/// Tells events until the engine ends, or the one who asked says anything or is gone.
async fn tell_events(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    engine: &EngineHandle,
) {
    let mut snapshots = engine.subscribe();
    let mut watcher = Watcher::default();
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        for event in watcher.see(&snapshot, Instant::now().into_std()) {
            let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            let Ok(mut line) = serde_json::to_vec(&TimedEvent { unix_ms, event }) else { return };
            line.push(b'\n');
            // A reader that does not read holds nobody up but itself.
            match timeout(IDLE_LIMIT, writer.write_all(&line)).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        tokio::select! {
            biased;
            _ = reader.read_u8() => return,
            changed = snapshots.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Tells of a measurement until it ends, or the one who asked says anything or is gone, which ends it.
async fn tell_measurement(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    mut measurement: Measurement,
) {
    loop {
        let event = tokio::select! {
            biased;
            _ = reader.read_u8() => return,
            event = measurement.next() => event,
        };
        let Some(Ok(mut line)) = event.as_ref().map(serde_json::to_vec) else { return };
        line.push(b'\n');
        match timeout(IDLE_LIMIT, writer.write_all(&line)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}

fn carry_out(engine: &EngineHandle, request: Request) -> Result<Option<Snapshot>, String> {
    match request {
        Request::Status => return Ok(Some(engine.snapshot())),
        Request::Mode(mode) => engine.set_mode(mode),
        Request::Set { network, setting, value } => set(engine, &network, &setting, &value)?,
        Request::Reset { network } => {
            if !engine.reset_network(&network) {
                return Err(format!("nothing was set for {network:?} by command"));
            }
        }
        Request::Events | Request::Measure { .. } => {
            return Err("this is told to whoever asks for nothing else".to_owned());
        }
        Request::Stop => engine.request_stop(),
    }
    Ok(None)
}

/// A network that is not there yet may be spoken of, but nobody fills the accounts with names.
fn set(engine: &EngineHandle, network: &str, setting: &str, value: &str) -> Result<(), String> {
    if network.is_empty() || network.len() > MAX_NETWORK || network.chars().any(char::is_control) {
        return Err(format!("network is {network:?}; it must be an interface's name, 1 to {MAX_NETWORK} bytes"));
    }
    let known = engine.snapshot().networks;
    if known.len() >= MAX_NETWORKS && known.iter().all(|known| known.name != network) {
        return Err(format!("there are settings for {MAX_NETWORKS} networks already: reset one"));
    }
    engine.set_network(network, setting, value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
