//! The race of one and two networks over a relay's addresses.

use super::*;
use crate::platform::InterfaceKind;

const MS: Duration = Duration::from_millis(1);
const DEAD_V6: &str = "[2001:db8::1]:4433";
const V4: &str = "192.0.2.1:4433";
const V4_TOO: &str = "192.0.2.2:4433";
const V4_THREE: &str = "192.0.2.3:4433";
const BOTH_FAMILIES: [&str; 2] = ["198.51.100.7", "2001:db8:7::7"];

/// A race with a script of which addresses answer.
struct Play {
    race: Race,
    now: Instant,
    paths: Vec<(PathSigns, Way)>,
    next: u8,
    /// What has been opened, with the time since the start.
    opened: Vec<(u128, String)>,
    start: Instant,
    sockets_fail: bool,
}

impl Play {
    fn new(networks: &[(&str, &[&str])], remotes: &[&str]) -> Self {
        let now = Instant::now();
        let mut play = Self {
            race: Race::default(),
            now,
            paths: Vec::new(),
            next: 0,
            opened: Vec::new(),
            start: now,
            sockets_fail: false,
        };
        play.set(networks, remotes);
        play
    }

    fn set(&mut self, networks: &[(&str, &[&str])], remotes: &[&str]) {
        let remotes: Vec<SocketAddr> = remotes.iter().map(|text| text.parse().unwrap()).collect();
        let with_remotes = |(name, addresses): &(&str, &[&str])| (interface(name, addresses), remotes.clone());
        self.race.set_networks(networks.iter().map(with_remotes).collect());
        self.step();
    }

    fn step(&mut self) {
        let signs: Vec<_> = self.paths.iter().map(|(signs, _)| *signs).collect();
        self.race.see(&signs, self.now);
        while let Some(step) = self.race.step(self.now) {
            match step {
                Step::Open(way) if self.sockets_fail => self.race.failed(&way, self.now),
                Step::Open(way) => {
                    let path = PathId(self.next);
                    self.next += 1;
                    self.race.opened(&way, path, self.now);
                    self.opened.push(((self.now - self.start).as_millis(), way.remote.to_string()));
                    self.paths.push((PathSigns { path, state: PathState::Joining, heard: false }, way));
                }
                Step::Drop(path) => self.paths.retain(|(signs, _)| signs.path != path),
            }
        }
    }

    /// Lets time pass; whatever is planned happens on the way.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.race.poll_timeout(self.now).filter(|at| *at <= end) {
            assert!(at > self.now, "planned for a time that has passed");
            self.now = at;
            self.step();
        }
        self.now = end;
        self.step();
    }

    fn becomes(&mut self, remote: &str, state: PathState) {
        let found = self.paths.iter_mut().find(|(_, way)| way.remote.to_string() == remote);
        found.expect("it has a path").0.state = state;
        self.step();
    }

    fn remotes(&self) -> Vec<String> {
        self.paths.iter().map(|(_, way)| way.remote.to_string()).collect()
    }
}

fn interface(name: &str, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    Interface { name: name.to_owned(), index: 1, kind: InterfaceKind::Other, addresses, up: true, external: true }
}

/// MULTI-10
#[test]
fn the_other_family_is_tried_beside_a_silent_one_and_the_one_that_answers_stays() {
    let mut play = Play::new(&[("wifi0", &BOTH_FAMILIES)], &[DEAD_V6, V4]);
    play.run(300 * MS);
    assert_eq!(play.opened, [(0, DEAD_V6.to_owned()), (250, V4.to_owned())]);
    play.becomes(V4, PathState::Up);
    assert_eq!(play.remotes(), [V4]);
    play.run(3_600_000 * MS);
    assert_eq!(play.opened.len(), 2, "nothing is tried beside a path that is up");
}

#[test]
fn an_address_that_answers_at_once_is_the_only_one_tried() {
    let mut play = Play::new(&[("wifi0", &BOTH_FAMILIES)], &[DEAD_V6, V4]);
    play.run(100 * MS);
    play.paths[0].0.heard = true;
    play.step();
    play.run(400 * MS);
    assert_eq!(play.remotes(), [DEAD_V6], "it was heard and gets time to join");
    play.run(600 * MS);
    assert_eq!(play.remotes(), [DEAD_V6, V4], "but not for ever");
}

#[test]
fn every_network_races_by_itself_and_only_with_its_own_families() {
    let networks: [(&str, &[&str]); 2] = [("wifi0", &BOTH_FAMILIES), ("cell0", &["203.0.113.9"])];
    let mut play = Play::new(&networks, &[DEAD_V6, V4]);
    assert_eq!(play.remotes(), [DEAD_V6, V4]);
    play.paths[1].0.state = PathState::Up;
    play.run(300 * MS);
    assert_eq!(play.remotes(), [DEAD_V6, V4, V4]);
    assert!(!play.race.all_up());
    play.paths[2].0.state = PathState::Up;
    play.step();
    assert!(play.race.all_up());
}

#[test]
fn a_path_that_falls_silent_is_kept_while_the_other_addresses_are_tried_beside_it() {
    let mut play = Play::new(&[("wifi0", &BOTH_FAMILIES)], &[V4, V4_TOO]);
    play.becomes(V4, PathState::Up);
    play.becomes(V4, PathState::Down);
    play.run(900 * MS);
    assert_eq!(play.remotes(), [V4]);
    play.run(200 * MS);
    assert_eq!(play.remotes(), [V4, V4_TOO]);
    play.becomes(V4, PathState::Up);
    assert_eq!(play.remotes(), [V4]);
}

#[test]
fn more_addresses_than_may_be_tried_at_once_take_turns_ever_more_slowly() {
    let mut play = Play::new(&[("wifi0", &BOTH_FAMILIES)], &[V4, V4_TOO, V4_THREE, DEAD_V6]);
    play.run(600 * MS);
    assert_eq!(play.remotes(), [V4, V4_TOO, V4_THREE]);
    play.run(2_300 * MS);
    assert_eq!(play.remotes(), [V4_TOO, V4_THREE, DEAD_V6]);
    let before = play.opened.len();
    play.run(600_000 * MS);
    assert!((10..=30).contains(&(play.opened.len() - before)), "{:?}", play.opened);
}

/// MULTI-8
#[test]
fn a_path_whose_source_address_is_gone_makes_room_once_there_is_another() {
    let mut play = Play::new(&[("wifi0", &["198.51.100.7"])], &[V4]);
    play.becomes(V4, PathState::Up);
    play.set(&[("wifi0", &["198.51.100.7", "198.51.100.8"])], &[V4]);
    assert_eq!(play.opened.len(), 1, "one more address changes nothing");
    play.set(&[("wifi0", &["10.9.9.9"])], &[V4]);
    assert_eq!(play.opened.len(), 2);
    assert_eq!(play.paths.len(), 1);
    assert_eq!(play.paths[0].1.interface.addresses, ["10.9.9.9".parse::<IpAddr>().unwrap()]);
}

#[test]
fn an_interface_that_comes_again_under_its_name_gets_a_new_path() {
    let mut play = Play::new(&[("wifi0", &["198.51.100.7"])], &[V4]);
    play.becomes(V4, PathState::Up);
    let again = Interface { index: 9, ..interface("wifi0", &["198.51.100.7"]) };
    play.race.set_networks(vec![(again, vec![V4.parse().unwrap()])]);
    play.step();
    assert_eq!((play.paths.len(), play.paths[0].1.interface.index), (1, 9));
    play.set(&[], &[V4]);
    assert!(play.paths.is_empty());
}

#[test]
fn a_socket_that_cannot_be_opened_is_tried_again_later_and_not_at_once() {
    let mut play = Play::new(&[("wifi0", &BOTH_FAMILIES)], &[]);
    play.sockets_fail = true;
    play.set(&[("wifi0", &BOTH_FAMILIES)], &[V4, DEAD_V6]);
    play.run(1_900 * MS);
    play.sockets_fail = false;
    assert_eq!(play.remotes().len(), 0);
    play.run(200 * MS);
    assert_eq!(play.remotes(), [V4]);
}

#[test]
fn there_are_never_more_paths_than_a_session_takes() {
    let names: Vec<String> = (0..MAX_PATHS + 2).map(|index| format!("net{index}")).collect();
    let networks: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &BOTH_FAMILIES[..])).collect();
    let mut play = Play::new(&networks, &[V4, DEAD_V6]);
    play.run(60_000 * MS);
    assert_eq!(play.paths.len(), MAX_PATHS);
}
