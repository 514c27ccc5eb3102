//! What happens to a session and its networks, for whoever wants to be told: seen in successive snapshots.
//!
//! A [`Watcher`] compares what it has told with what is so. A change is told once it has lasted a moment ([`SETTLE`]), and of one
//! subject at most every [`SPACING`]: a network that flaps makes one `lost` and one `back` in that time at most, and what is
//! told last is what stays. What was so when the watching began is not told.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::networks::CapState;
use crate::stats::{PathState, SessionState, Snapshot};

/// How long a change must last before it is told. That a cap is reached is told at once.
pub const SETTLE: Duration = Duration::from_secs(1);

/// After one pair of changes, such as lost and back, the next of the same subject is told after this long at the earliest.
pub const SPACING: Duration = Duration::from_secs(30);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The session is there.
    Connected {
        /// The relay.
        relay: String,
    },
    /// The session is with another relay, and was not missing in between.
    RelayChanged {
        /// The relay.
        relay: String,
    },
    /// The session is not there any more, or no network gets an answer.
    Disconnected {
        /// Why, in words for a person.
        problem: Option<String>,
    },
    /// There is still no connection, for another reason than was told.
    Problem {
        /// Why, in words for a person.
        problem: String,
    },
    /// A network carries data no longer, or is gone.
    Lost {
        /// Its name.
        network: String,
        /// Why, in words for a person.
        problem: Option<String>,
    },
    /// A network may carry data, for the first time or again.
    Back {
        /// Its name.
        network: String,
    },
    /// A network carries data from another address of this machine than before.
    AddressChanged {
        /// Its name.
        network: String,
        /// The address, without a port.
        address: String,
    },
    /// A network is slowed, as it has reached the soft limit of a cap.
    CapNear {
        /// Its name.
        network: String,
    },
    /// A network has reached a cap, and is used no more.
    CapReached {
        /// Its name.
        network: String,
        /// Which cap, and until when, in words for a person.
        problem: Option<String>,
    },
    /// A network is used again without restraint: another day or month has begun, or its cap is another.
    CapFree {
        /// Its name.
        network: String,
    },
}

/// An event and when it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = |problem: &Option<String>| problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
        match self {
            Self::Connected { relay } => write!(f, "connected to {relay}"),
            Self::RelayChanged { relay } => write!(f, "moved to {relay}"),
            Self::Disconnected { problem } => write!(f, "disconnected{}", why(problem)),
            Self::Problem { problem } => write!(f, "still not connected: {problem}"),
            Self::Lost { network, problem } => write!(f, "{network} is lost{}", why(problem)),
            Self::Back { network } => write!(f, "{network} is back"),
            Self::AddressChanged { network, address } => write!(f, "{network} has the address {address} now"),
            Self::CapNear { network } => write!(f, "{network} is near its cap, and slowed"),
            Self::CapReached { network, problem } => write!(f, "{network} is used no more{}", why(problem)),
            Self::CapFree { network } => write!(f, "{network} is used without restraint again"),
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Session,
    Relay,
    Network(String),
    Address(String),
    Cap(String),
}

/// How a subject is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    On,
    Off,
    Cap(CapState),
    /// Which it is.
    Is(String),
}

/// What was told of a subject, and what is so.
#[derive(Debug)]
struct Told {
    told: State,
    now: State,
    since: Instant,
    /// When the last two changes were told.
    told_at: [Option<Instant>; 2],
}

/// Finds events in successive snapshots.
#[derive(Debug, Default)]
pub struct Watcher {
    subjects: BTreeMap<Subject, Told>,
    problem: Option<String>,
    problem_told_at: Option<Instant>,
    began: bool,
}

impl Told {
    fn new(state: State, now: Instant) -> Self {
        Self { told: state.clone(), now: state, since: now, told_at: [None; 2] }
    }

    /// The state, if it is to be told now.
    fn see(&mut self, state: State, now: Instant) -> Option<State> {
        if self.now != state {
            (self.now, self.since) = (state.clone(), now);
        }
        let spaced = self.told_at[0].is_none_or(|at| now.saturating_duration_since(at) >= SPACING);
        let is_due =
            state == State::Cap(CapState::Reached) || (spaced && now.saturating_duration_since(self.since) >= SETTLE);
        if self.told == state || !is_due {
            return None;
        }
        self.told = state.clone();
        self.told_at = [self.told_at[1], Some(now)];
        Some(state)
    }
}

impl Watcher {
    /// Looks at a snapshot, and tells what has happened since the last.
    pub fn see(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let began = std::mem::replace(&mut self.began, true);
        for (subject, state) in self.states(snapshot) {
            // What was not there before was off.
            let before = match &state {
                _ if !began => state.clone(),
                State::Cap(_) => State::Cap(CapState::Free),
                State::Is(_) => state.clone(),
                State::On | State::Off => State::Off,
            };
            let told = self.subjects.entry(subject.clone()).or_insert_with(|| Told::new(before, now));
            if let Some(state) = told.see(state, now) {
                events.push(event(&subject, state, snapshot));
            }
        }
        // Whoever is told of the connection is told of its relay.
        if events.iter().any(|event| matches!(event, Event::Connected { .. })) {
            events.retain(|event| !matches!(event, Event::RelayChanged { .. }));
        }
        if began {
            events.extend(self.see_problem(snapshot, &events, now));
        } else {
            self.problem.clone_from(&snapshot.problem);
        }
        events
    }

    /// How everything is. What was there before and is not in the snapshot is off, and has the relay and addresses that it had.
    fn states(&self, snapshot: &Snapshot) -> BTreeMap<Subject, State> {
        let gone = self.subjects.iter().map(|(subject, told)| {
            let state = match &told.now {
                State::Cap(_) => State::Cap(CapState::Free),
                State::Is(which) => State::Is(which.clone()),
                State::On | State::Off => State::Off,
            };
            (subject.clone(), state)
        });
        let mut states: BTreeMap<_, _> = gone.collect();
        let on = |is_on| if is_on { State::On } else { State::Off };
        states.insert(Subject::Session, on(snapshot.state == SessionState::Connected));
        if snapshot.state == SessionState::Connected {
            states.insert(Subject::Relay, State::Is(snapshot.relay.clone()));
        }
        for path in &snapshot.paths {
            states.insert(Subject::Network(path.interface.clone()), on(path.state == PathState::Up));
            let local = path.local.parse::<SocketAddr>().ok().filter(|_| path.state == PathState::Up);
            if let Some(local) = local {
                states.insert(Subject::Address(path.interface.clone()), State::Is(local.ip().to_string()));
            }
        }
        for network in &snapshot.networks {
            states.insert(Subject::Cap(network.name.clone()), State::Cap(network.cap));
        }
        states
    }

    /// Tells why there is no connection, when that is another reason than before.
    fn see_problem(&mut self, snapshot: &Snapshot, events: &[Event], now: Instant) -> Option<Event> {
        if events.iter().any(|event| matches!(event, Event::Disconnected { .. } | Event::Connected { .. })) {
            self.problem.clone_from(&snapshot.problem);
            self.problem_told_at = Some(now);
            return None;
        }
        let spaced = self.problem_told_at.is_none_or(|at| now.saturating_duration_since(at) >= SPACING);
        let told_off = self.subjects.get(&Subject::Session).is_some_and(|session| session.told == State::Off);
        let problem = snapshot.problem.clone().filter(|_| snapshot.state != SessionState::Connected && told_off)?;
        if self.problem.as_ref() == Some(&problem) || !spaced {
            return None;
        }
        self.problem = Some(problem.clone());
        self.problem_told_at = Some(now);
        Some(Event::Problem { problem })
    }
}

fn event(subject: &Subject, state: State, snapshot: &Snapshot) -> Event {
    match (subject, state) {
        (Subject::Session, State::On) => Event::Connected { relay: snapshot.relay.clone() },
        (Subject::Relay, _) => Event::RelayChanged { relay: snapshot.relay.clone() },
        (Subject::Address(network), State::Is(address)) => Event::AddressChanged { network: network.clone(), address },
        (Subject::Session, _) => Event::Disconnected { problem: snapshot.problem.clone() },
        (Subject::Cap(network), State::Cap(CapState::Near)) => Event::CapNear { network: network.clone() },
        (Subject::Cap(network), State::Cap(CapState::Reached)) => {
            let of = |stats: &&crate::stats::NetworkStats| stats.name == *network;
            let problem = snapshot.networks.iter().find(of).and_then(|stats| stats.problem.clone());
            Event::CapReached { network: network.clone(), problem }
        }
        (Subject::Cap(network), _) => Event::CapFree { network: network.clone() },
        (Subject::Network(network), State::On) => Event::Back { network: network.clone() },
        (Subject::Network(network) | Subject::Address(network), _) => {
            let of = |path: &&crate::stats::PathStats| path.interface == *network;
            let barred = snapshot.networks.iter().find(|stats| stats.name == *network);
            let problem = snapshot.paths.iter().find(of).and_then(|path| path.problem.clone());
            let problem = problem.or_else(|| barred.and_then(|stats| stats.problem.clone()));
            Event::Lost { network: network.clone(), problem }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{NetworkStats, PathStats};

    const MS: Duration = Duration::from_millis(1);

    fn snapshot(up: &[(&str, bool)]) -> Snapshot {
        let path = |(name, up): &(&str, bool)| PathStats {
            interface: (*name).to_owned(),
            state: if *up { PathState::Up } else { PathState::Down },
            problem: (!up).then(|| "silent".to_owned()),
            ..PathStats::default()
        };
        let state = if up.iter().any(|(_, up)| *up) { SessionState::Connected } else { SessionState::Connecting };
        let problem = (state != SessionState::Connected).then(|| "nobody answers".to_owned());
        let relay = "relay.example:4433".to_owned();
        Snapshot { state, problem, relay, paths: up.iter().map(path).collect(), ..Snapshot::default() }
    }

    /// Plays snapshots every 250 ms and collects what is told, with the time in milliseconds.
    fn play(watcher: &mut Watcher, from_ms: u32, to_ms: u32, at: impl Fn(u32) -> Snapshot) -> Vec<(u32, Event)> {
        let start = crate::testing::start();
        let times = (from_ms..to_ms).step_by(250);
        times.flat_map(|ms| watcher.see(&at(ms), start + ms * MS).into_iter().map(move |event| (ms, event))).collect()
    }

    #[test]
    fn a_network_that_is_lost_and_comes_back_is_told_once_each() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| snapshot(&[("wifi0", true), ("cell0", !(10_000..20_000).contains(&ms))]);
        let network = || "cell0".to_owned();
        let lost = Event::Lost { network: network(), problem: Some("silent".to_owned()) };
        let told = play(&mut watcher, 0, 60_000, at);
        assert_eq!(told, [(11_000, lost), (21_000, Event::Back { network: network() })]);
    }

    #[test]
    fn flapping_makes_two_events_in_half_a_minute_and_the_last_one_is_true() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| snapshot(&[("wifi0", true), ("cell0", ms > 200_000 || (ms / 2_000).is_multiple_of(2))]);
        let told = play(&mut watcher, 0, 260_000, at);
        assert!(told.len() <= 2 * (200 / 30 + 1), "{}", told.len());
        assert!(told.iter().zip(told.iter().skip(2)).all(|((one, _), (third, _))| third - one >= 30_000), "{told:?}");
        assert!(matches!(told.last(), None | Some((_, Event::Back { .. }))), "{told:?}");
        let mut short = Watcher::default();
        let at = |ms: u32| snapshot(&[("wifi0", true), ("cell0", !(10_000..10_750).contains(&ms))]);
        assert_eq!(play(&mut short, 0, 60_000, at), [], "what does not last is not told");
    }

    #[test]
    fn the_session_and_why_there_is_none_is_told() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| match ms {
            0..10_000 => snapshot(&[("wifi0", true)]),
            10_000..20_000 => snapshot(&[("wifi0", false)]),
            20_000..60_000 => {
                let problem = Some("no network can be used".to_owned());
                Snapshot { problem, paths: Vec::new(), ..snapshot(&[]) }
            }
            _ => snapshot(&[("cell0", true)]),
        };
        let told: Vec<_> = play(&mut watcher, 0, 120_000, at).into_iter().map(|(_, event)| event).collect();
        let problem = |text: &str| Some(text.to_owned());
        let expected = [
            Event::Disconnected { problem: problem("nobody answers") },
            Event::Lost { network: "wifi0".to_owned(), problem: problem("silent") },
            Event::Problem { problem: "no network can be used".to_owned() },
            Event::Connected { relay: "relay.example:4433".to_owned() },
            Event::Back { network: "cell0".to_owned() },
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn another_relay_and_another_address_are_told_and_another_port_is_not() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| {
            let mut now = snapshot(&[("wifi0", true), ("cell0", !(5_000..20_000).contains(&ms))]);
            now.paths[0].local = format!("192.0.2.{}:{}", if ms < 40_000 { 1 } else { 2 }, ms / 10_000);
            now.paths[1].local = if ms < 10_000 { "10.0.0.1:1" } else { "10.0.0.2:1" }.to_owned();
            now.relay = if ms < 30_000 { "one:4433" } else { "two:4433" }.to_owned();
            now
        };
        let of = |network: &str| network.to_owned();
        let expected = [
            (6_000, Event::Lost { network: of("cell0"), problem: Some("silent".to_owned()) }),
            (21_000, Event::Back { network: of("cell0") }),
            (21_000, Event::AddressChanged { network: of("cell0"), address: "10.0.0.2".to_owned() }),
            (31_000, Event::RelayChanged { relay: "two:4433".to_owned() }),
            (41_000, Event::AddressChanged { network: of("wifi0"), address: "192.0.2.2".to_owned() }),
        ];
        assert_eq!(play(&mut watcher, 0, 60_000, at), expected);
    }

    #[test]
    fn a_relay_that_comes_with_a_new_connection_is_told_once() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| {
            let relay = if ms < 20_000 { "one:4433" } else { "two:4433" }.to_owned();
            Snapshot { relay, ..snapshot(&[("wifi0", !(10_000..20_000).contains(&ms))]) }
        };
        let told: Vec<_> = play(&mut watcher, 0, 60_000, at).into_iter().map(|(_, event)| event).collect();
        let problem = Some("nobody answers".to_owned());
        let expected = [
            Event::Disconnected { problem },
            Event::Lost { network: "wifi0".to_owned(), problem: Some("silent".to_owned()) },
            Event::Connected { relay: "two:4433".to_owned() },
            Event::Back { network: "wifi0".to_owned() },
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn caps_are_told_when_they_are_near_reached_and_free_again() {
        let mut watcher = Watcher::default();
        let at = |ms: u32| {
            let (cap, problem) = match ms {
                0..5_000 => (CapState::Free, None),
                5_000..9_000 => (CapState::Near, None),
                9_000..90_000 => (CapState::Reached, Some("its cap of 2 GB a day is reached".to_owned())),
                _ => (CapState::Free, None),
            };
            let network = NetworkStats { name: "cell0".to_owned(), cap, problem, ..NetworkStats::default() };
            Snapshot { networks: vec![network], ..snapshot(&[("wifi0", true)]) }
        };
        let network = || "cell0".to_owned();
        let problem = Some("its cap of 2 GB a day is reached".to_owned());
        let expected = [
            (6_000, Event::CapNear { network: network() }),
            (9_000, Event::CapReached { network: network(), problem }),
            (91_000, Event::CapFree { network: network() }),
        ];
        assert_eq!(play(&mut watcher, 0, 120_000, at), expected);
    }

    #[test]
    fn events_are_written_as_documented() {
        let event = Event::Lost { network: "wifi0".to_owned(), problem: None };
        let text = serde_json::to_string(&event).expect("plain data");
        assert_eq!(text, r#"{"event":"lost","network":"wifi0","problem":null}"#);
        let timed = TimedEvent { unix_ms: 1_796_083_200_000, event };
        let text = serde_json::to_string(&timed).expect("plain data");
        assert_eq!(text, r#"{"unix_ms":1796083200000,"event":"lost","network":"wifi0","problem":null}"#);
        assert_eq!(serde_json::from_str::<TimedEvent>(&text).expect("it was just written"), timed);
    }
}
