//! The tray's menu as data: what stands there, what is marked, and what pressing it means.

use tandem_proto::mode::{Mode, Sides};

use crate::state::{Condition, Life, State};
use crate::words::words;

/// A line of the menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A text that cannot be pressed.
    Text(String),
    /// Something that can be pressed.
    Button {
        /// What it means.
        action: Action,
        /// What it says.
        label: String,
    },
    /// One of several, of which one is marked.
    Choice {
        /// What it means.
        action: Action,
        /// What it says.
        label: String,
        /// Whether it is the one.
        marked: bool,
    },
    /// A line between groups.
    Separator,
}

/// What can be pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Show the window.
    Open,
    /// Switch on.
    Connect,
    /// Switch off.
    Disconnect,
    /// Change the mode.
    Mode(Mode),
    /// End the app.
    Quit,
}

/// Which icon the tray has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Icon {
    /// Switched off.
    Off,
    /// On its way, or something is wrong.
    Trouble,
    /// Traffic passes.
    On,
}

/// The modes that can be chosen.
const MODES: [Mode; 4] =
    [Mode::Single, Mode::Bicast(Sides::Both), Mode::Bicast(Sides::Server), Mode::Bicast(Sides::Client)];

impl Action {
    const PLAIN: [(Action, &'static str); 4] = [
        (Action::Open, "open"),
        (Action::Connect, "connect"),
        (Action::Disconnect, "disconnect"),
        (Action::Quit, "quit"),
    ];

    /// A name that stands for it in the menu.
    pub fn id(self) -> String {
        match self {
            Action::Mode(mode) => mode.to_string(),
            plain => Self::PLAIN.into_iter().find(|(action, _)| *action == plain).map_or("", |(_, id)| id).to_owned(),
        }
    }

    /// The action of this name.
    pub fn of_id(id: &str) -> Option<Self> {
        let plain = Self::PLAIN.into_iter().find(|(_, name)| *name == id).map(|(action, _)| action);
        plain.or_else(|| MODES.into_iter().find(|mode| mode.to_string() == id).map(Action::Mode))
    }
}

/// The menu in this state.
pub fn menu(state: &State) -> Vec<Item> {
    let words = words();
    let button = |action, label: &str| Item::Button { action, label: label.to_owned() };
    let switch = match state.life {
        Life::On | Life::Starting => button(Action::Disconnect, &words.disconnect),
        Life::Off | Life::Stopping => button(Action::Connect, &words.connect),
    };
    let mut items = vec![Item::Text(headline(state)), button(Action::Open, &words.open), Item::Separator];
    if state.condition != Condition::Unpaired {
        items.push(switch);
        items.push(Item::Separator);
        items.extend(MODES.into_iter().map(|mode| Item::Choice {
            action: Action::Mode(mode),
            label: label(mode).to_owned(),
            marked: present_mode(state) == mode,
        }));
        items.push(Item::Separator);
    }
    items.push(button(Action::Quit, &words.quit));
    items
}

/// The mode in use, or that will be.
pub fn present_mode(state: &State) -> Mode {
    let chosen = state.settings.mode.map(|chosen| chosen.mode).unwrap_or_default();
    state.snapshot.as_ref().map_or(chosen, |snapshot| snapshot.mode)
}

/// How things stand, in a few words.
pub fn headline(state: &State) -> String {
    let words = words();
    match state.condition {
        Condition::Unpaired => &words.unpaired,
        Condition::Off => &words.off,
        Condition::Starting => &words.starting,
        Condition::Stopping => &words.stopping,
        Condition::Connecting => &words.connecting,
        Condition::Connected => &words.connected,
        Condition::NoNetwork => &words.no_network,
        Condition::Captive => &words.captive,
        Condition::Refused => &words.refused,
        Condition::Unreachable => &words.unreachable,
    }
    .clone()
}

/// The icon in this state.
pub fn icon(state: &State) -> Icon {
    match state.condition {
        Condition::Unpaired | Condition::Off | Condition::Stopping => Icon::Off,
        Condition::Connected => Icon::On,
        _ => Icon::Trouble,
    }
}

fn label(mode: Mode) -> &'static str {
    let words = words();
    match mode {
        Mode::Single => &words.single,
        Mode::Bicast(Sides::Both) => &words.bicast_both,
        Mode::Bicast(Sides::Server) => &words.bicast_server,
        Mode::Bicast(Sides::Client) => &words.bicast_client,
    }
}

#[cfg(test)]
mod tests {
    use tandem_proto::stats::Snapshot;

    use super::*;

    fn actions(items: &[Item]) -> Vec<Action> {
        let action = |item: &Item| match item {
            Item::Button { action, .. } | Item::Choice { action, .. } => Some(*action),
            _ => None,
        };
        items.iter().filter_map(action).collect()
    }

    /// DESK-1
    #[test]
    fn without_a_pairing_there_is_nothing_to_switch() {
        let state = State { condition: Condition::Unpaired, ..State::default() };
        assert_eq!(actions(&menu(&state)), [Action::Open, Action::Quit]);
        assert_eq!(icon(&state), Icon::Off);
    }

    #[test]
    fn the_mode_of_the_engine_is_marked_and_it_alone() {
        let mode = Mode::Bicast(Sides::Server);
        let snapshot = Some(Snapshot { mode, ..Snapshot::default() });
        let state = State { life: Life::On, condition: Condition::Connected, snapshot, ..State::default() };
        let items = menu(&state);
        let marked = |item: &Item| match item {
            Item::Choice { action, marked: true, .. } => Some(*action),
            _ => None,
        };
        assert_eq!(items.iter().filter_map(marked).collect::<Vec<_>>(), [Action::Mode(mode)]);
        assert!(actions(&items).contains(&Action::Disconnect));
        assert_eq!(icon(&state), Icon::On);
    }

    #[test]
    fn every_action_is_found_by_its_name() {
        let state = State { life: Life::On, condition: Condition::Connected, ..State::default() };
        for action in actions(&menu(&state)).into_iter().chain([Action::Connect]) {
            assert_eq!(Action::of_id(&action.id()), Some(action));
        }
        assert_eq!(Action::of_id("other"), None);
    }
}
