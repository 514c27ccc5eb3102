//! What can be wished of a controller, and how: whoever wants something has a [`Handle`].

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tandem_proto::measure::Kind;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::PairingLink;
use tokio::sync::{mpsc, oneshot, watch};

use crate::engines::chain;
use crate::history::History;
use crate::links::Links;
use crate::runs::{Runs, ShownRun};
use crate::settings::Settings;
use crate::state::State;

/// What was asked for and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What can be done about it.
    pub kind: RefusalKind,
    /// Why, in words for a person; no secret.
    pub text: String,
}

/// What can be done about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// There is no keychain: the same with `allow_file` keeps the pairing in a private file.
    NoKeychain,
    /// What the text says.
    Other,
}

/// Something that is wished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Switch on.
    Connect,
    /// Switch off; an engine of another program too.
    Disconnect,
    /// Use the networks in this way.
    Mode(Mode),
    /// Say something of a network, see [`Request::Set`](tandem_core::client::control::Request::Set).
    SetNetwork {
        /// The interface's name.
        network: String,
        /// Which setting.
        setting: String,
        /// Its value.
        value: String,
    },
    /// Keep a link.
    Pair {
        /// The link.
        link: PairingLink,
        /// What to call the relay; `None` for its address.
        name: Option<String>,
        /// Whether a private file may take it where there is no keychain.
        allow_file: bool,
    },
    /// Give a relay another name.
    Rename {
        /// Its name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Forget a relay.
    Remove(String),
    /// Take a relay before nearer ones, or none.
    Prefer(Option<String>),
    /// Measure, if nothing is measured yet; the state tells how far it is.
    Measure {
        /// What.
        what: Kind,
        /// How long each transfer takes, 1 to 60.
        seconds: u16,
    },
    /// Measure no more; nothing comes of it.
    CancelMeasuring,
    /// Keep these choices; the mode is left as it is.
    Settings(Settings),
    /// The window is shown, or hidden.
    Shown(bool),
    /// End: stop the engine of this process, put back what was changed.
    Quit,
}

/// Where the answer to a wish goes.
pub(crate) type Reply = oneshot::Sender<Result<(), Refusal>>;

/// Asks and watches a controller; any number of clones.
#[derive(Clone)]
pub struct Handle {
    pub(crate) wishes: mpsc::Sender<(Wish, Reply)>,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) runs: Arc<Mutex<Runs>>,
    pub(crate) links: Arc<dyn Links>,
}

impl Handle {
    /// Wishes something, and waits until it is done.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn wish(&self, wish: Wish) -> Result<(), Refusal> {
        let (reply, done) = oneshot::channel();
        let ending = || other("the app is ending".to_owned());
        self.wishes.send((wish, reply)).await.map_err(|_| ending())?;
        done.await.unwrap_or_else(|_| Err(ending()))
    }

    /// What is shown now, and from now on.
    pub fn subscribe(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// What the last hour was like.
    pub fn history(&self) -> &Mutex<History> {
        &self.history
    }

    /// What was measured, the newest first.
    pub fn runs(&self) -> Vec<ShownRun> {
        self.runs.lock().shown()
    }

    /// A relay's pairing link with its secret, to be shown to the person who pairs another device; may block.
    ///
    /// # Errors
    /// [`Refusal`] if it is not known or cannot be read.
    pub fn expose_link(&self, name: &str) -> Result<String, Refusal> {
        let (pairings, _) = self.links.load().map_err(|error| other(chain(&error)))?;
        let found = pairings.list().iter().find(|pairing| pairing.name == name);
        found.map(|pairing| pairing.link.expose()).ok_or_else(|| other(format!("there is no relay called {name:?}")))
    }
}

pub(crate) fn other(text: String) -> Refusal {
    Refusal { kind: RefusalKind::Other, text }
}
