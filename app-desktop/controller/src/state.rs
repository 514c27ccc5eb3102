//! What the window and the tray show: one value, made by the controller and by nothing else.

use serde::Serialize;
use tandem_proto::measure::{Kind, Progress};
use tandem_proto::pairing::{Pairing, Pairings};
use tandem_proto::stats::{RelayState, SessionState, Snapshot};

use crate::settings::Settings;

/// Everything that is shown, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct State {
    /// What the engine is about.
    pub life: Life,
    /// Whether it belongs to another program, such as `tandem run`.
    pub elsewhere: bool,
    /// How things stand, in one word: what follows from the rest.
    pub condition: Condition,
    /// Why the engine did not start, in words for a person.
    pub fault: Option<String>,
    /// What the engine tells; `None` while there is none.
    pub snapshot: Option<Snapshot>,
    /// The relays that are paired with, without their secrets.
    pub relays: Vec<Relay>,
    /// Where the pairings are kept, in words; `None` while there are none.
    pub kept: Option<String>,
    /// Why the pairings cannot be read.
    pub kept_problem: Option<String>,
    /// What the user has chosen.
    pub settings: Settings,
    /// The proxy settings of the desktop.
    pub system_proxy: SystemProxyState,
    /// What is being measured, and what was.
    pub measuring: MeasuringState,
}

/// What the engine is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// There is none.
    #[default]
    Off,
    /// It is being started.
    Starting,
    /// It runs.
    On,
    /// It is being stopped.
    Stopping,
}

/// How things stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// No relay is known.
    Unpaired,
    /// Switched off.
    #[default]
    Off,
    /// Being started.
    Starting,
    /// Being stopped.
    Stopping,
    /// Looking for the relay, for the first time or again, with nothing known to be wrong.
    Connecting,
    /// A network carries traffic to the relay and back.
    Connected,
    /// The machine has no network that can be used.
    NoNetwork,
    /// A network wants a login first, and no other one works.
    Captive,
    /// Every relay refuses this device.
    Refused,
    /// There is no session, for the reason that the snapshot tells.
    Unreachable,
}

/// A relay without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Relay {
    /// What its user calls it.
    pub name: String,
    /// Its addresses; by these the snapshot's relays are found, whatever they are called.
    pub addresses: String,
    /// What the relay's operator called this device.
    pub paired_as: String,
    /// Whether it is taken before nearer ones.
    pub preferred: bool,
}

/// What is known of the desktop's proxy settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemProxyState {
    /// Which settings they are, for example `GNOME`; `None` where this system has none that can be set.
    pub desktop: Option<String>,
    /// Whether they lead to Tandem now.
    pub set: bool,
    /// What went wrong with them last.
    pub problem: Option<String>,
}

/// What is being measured, and what was.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MeasuringState {
    /// What runs now.
    pub running: Option<Running>,
    /// Why nothing came of the last one, in words for a person.
    pub problem: Option<String>,
    /// The newest run's number; changes when there is another to show.
    pub latest: Option<u64>,
    /// Why runs of before cannot be read, or new ones kept.
    pub kept_problem: Option<String>,
}

/// A measurement that runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Running {
    /// What is measured.
    pub what: Kind,
    /// How long each transfer takes.
    pub seconds: u16,
    /// How far it is; `None` while it begins.
    pub progress: Option<Progress>,
}

impl Condition {
    /// What follows from a state.
    pub fn of(state: &State) -> Self {
        match (state.life, &state.snapshot) {
            (Life::Off, _) if state.relays.is_empty() => Self::Unpaired,
            (Life::Off, _) => Self::Off,
            (Life::Starting, _) => Self::Starting,
            (Life::Stopping, _) => Self::Stopping,
            (Life::On, None) => Self::Connecting,
            (Life::On, Some(snapshot)) => Self::of_running(snapshot),
        }
    }

    fn of_running(snapshot: &Snapshot) -> Self {
        // What docs/CLIENT.md promises to say of a network that wants a login.
        let is_captive = |problem: &Option<String>| problem.as_ref().is_some_and(|text| text.contains("captive:"));
        let refused = |relays: &[_]| !relays.is_empty() && relays.iter().all(|state| *state == RelayState::Refused);
        let relays: Vec<_> = snapshot.relays.iter().map(|relay| relay.state).collect();
        if snapshot.state == SessionState::Connected {
            return Self::Connected;
        }
        if refused(&relays) {
            return Self::Refused;
        }
        if snapshot.networks.iter().all(|network| !network.present) {
            return Self::NoNetwork;
        }
        if is_captive(&snapshot.problem) || snapshot.paths.iter().any(|path| is_captive(&path.problem)) {
            return Self::Captive;
        }
        if snapshot.problem.is_some() { Self::Unreachable } else { Self::Connecting }
    }
}

/// The pairings as they are shown.
pub(crate) fn relays(pairings: &Pairings) -> Vec<Relay> {
    let of = |pairing: &Pairing| Relay {
        name: pairing.name.clone(),
        addresses: pairing.link.relays.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        paired_as: pairing.link.name.clone(),
        preferred: pairings.preferred() == Some(&*pairing.name),
    };
    pairings.list().iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use tandem_proto::stats::{NetworkStats, PathStats, RelayStats};

    use super::*;

    fn running(snapshot: Snapshot) -> Condition {
        Condition::of(&State { life: Life::On, snapshot: Some(snapshot), ..State::default() })
    }

    fn looking(problem: Option<&str>) -> Snapshot {
        let network = NetworkStats { name: "wlan0".to_owned(), present: true, ..NetworkStats::default() };
        let problem = problem.map(str::to_owned);
        Snapshot { state: SessionState::Connecting, problem, networks: vec![network], ..Snapshot::default() }
    }

    #[test]
    fn connected_means_that_the_engine_says_that_traffic_passes() {
        let connected = Snapshot { state: SessionState::Connected, ..looking(Some("it goes away")) };
        assert_eq!(running(connected), Condition::Connected);
        assert_eq!(running(looking(None)), Condition::Connecting);
        assert_eq!(running(looking(Some("the relay cannot be reached"))), Condition::Unreachable);
    }

    #[test]
    fn what_keeps_the_session_away_has_a_name() {
        let nothing = Snapshot { networks: Vec::new(), ..looking(Some("no network can be used")) };
        assert_eq!(running(nothing), Condition::NoNetwork);
        let told = "the relay cannot be reached (wlan0: captive: sign in to the network)";
        assert_eq!(running(looking(Some(told))), Condition::Captive);
        let path = PathStats { problem: Some("captive: sign in to the network".to_owned()), ..PathStats::default() };
        assert_eq!(running(Snapshot { paths: vec![path], ..looking(Some("silent")) }), Condition::Captive);
        let relay = |state| RelayStats { state, ..RelayStats::default() };
        let revoked = Snapshot { relays: vec![relay(RelayState::Refused)], ..looking(Some("revoked")) };
        assert_eq!(running(revoked), Condition::Refused);
        let other = vec![relay(RelayState::Refused), relay(RelayState::Known)];
        assert_eq!(running(Snapshot { relays: other, ..looking(Some("revoked")) }), Condition::Unreachable);
    }
}
