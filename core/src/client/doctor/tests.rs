//! Verdicts on facts.

use tandem_proto::stats::{PathStats, SessionState};
use tandem_proto::wire::flow::RefusedReason;

use super::port::Holder;
use super::*;
use crate::platform::InterfaceKind;

/// A machine with Wi-Fi and cellular, of which all is well.
fn well() -> Facts {
    Facts {
        config: None,
        link: Ok(vec!["192.0.2.1:4433".to_owned()]),
        keychain: Ok(true),
        engine: Ok(None),
        listen: vec![("127.0.0.1:1080".parse().unwrap(), PortState::Free)],
        networks: Ok(vec![(network("wlan0"), true), (network("wwan0"), true)]),
        barred: Ok(BTreeMap::new()),
        named: Vec::new(),
        names: Vec::new(),
        ways: vec![way("wlan0", reached()), way("wwan0", reached())],
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(NOW),
    }
}

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 3600;

fn network(name: &str) -> Interface {
    let addresses = vec!["198.51.100.7".parse::<IpAddr>().unwrap()];
    Interface { name: name.to_owned(), index: 1, kind: InterfaceKind::Wifi, addresses, up: true, external: true }
}

fn way(interface: &str, outcome: Outcome) -> Way {
    Way { interface: interface.to_owned(), remote: "192.0.2.1:4433".parse().unwrap(), outcome, mapping: None }
}

fn reached() -> Outcome {
    Outcome::Reached(Reached { token_expires: NOW + 60 * DAY, joined: true, mtu_bytes: 1472, ..Reached::default() })
}

fn silent(port_closed: bool, filtered: bool, tcp_answers: bool) -> Outcome {
    Outcome::Silent(Knock { port_closed, filtered, tcp_answers })
}

fn refused(reason: RefusedReason, relay_time: u64) -> Outcome {
    Outcome::Refused { reason, relay_time: Some(relay_time), text: "no".to_owned() }
}

/// What is not ok.
fn complaints(facts: &Facts) -> Vec<Finding> {
    judge(facts).into_iter().filter(|finding| finding.verdict != Verdict::Ok).collect()
}

/// The one complaint there is.
fn complaint(facts: &Facts) -> (Verdict, Matter) {
    let mut all = complaints(facts);
    assert_eq!(all.len(), 1, "{all:?}");
    let only = all.remove(0);
    (only.verdict, only.matter)
}

fn hints(first: Outcome, second: Outcome) -> Vec<(Verdict, Hint)> {
    let facts = Facts { ways: vec![way("wlan0", first), way("wwan0", second)], ..well() };
    let hint = |finding: Finding| match finding.matter {
        Matter::WaySilent { hint, .. } => Some((finding.verdict, hint)),
        _ => None,
    };
    judge(&facts).into_iter().filter_map(hint).collect()
}

#[test]
fn a_machine_on_which_all_is_well_has_nothing_to_complain_of() {
    assert_eq!(complaints(&well()), []);
    assert!(judge(&well()).iter().any(|finding| matches!(finding.matter, Matter::Token { .. })));
}

#[test]
fn a_network_that_must_not_be_used_is_told_and_a_reached_cap_is_worth_a_word() {
    let capped = Bar::DailyCap { bytes: 500_000_000, until: "2026-12-02".parse().unwrap() };
    for (bars, verdicts) in [
        (vec![("wwan0", Bar::Never)], vec![Verdict::Ok]),
        (vec![("wwan0", capped)], vec![Verdict::Warning]),
        (vec![("wlan0", capped), ("wwan0", Bar::Never)], vec![Verdict::Problem, Verdict::Ok]),
    ] {
        let barred: BTreeMap<_, _> = bars.into_iter().map(|(name, bar)| (name.to_owned(), bar)).collect();
        let ways = well().ways.into_iter().filter(|way| !barred.contains_key(&way.interface)).collect();
        let found = judge(&Facts { barred: Ok(barred), ways, ..well() });
        let of_bars = found.iter().filter(|finding| matches!(finding.matter, Matter::NetworkBarred { .. }));
        assert_eq!(of_bars.map(|finding| finding.verdict).collect::<Vec<_>>(), verdicts);
    }
    let facts = Facts { barred: Err("networks.json is damaged".to_owned()), ..well() };
    assert!(matches!(complaint(&facts), (Verdict::Problem, Matter::StateWrong { .. })));
}

#[test]
fn silence_is_told_apart_by_comparing_ways_and_by_knocking() {
    use Hint::*;
    use Verdict::{Problem, Warning};
    let table = [
        (silent(false, false, true), reached(), vec![(Warning, NoUdpHere)]),
        (silent(false, false, false), reached(), vec![(Warning, NothingHere)]),
        (silent(true, false, true), reached(), vec![(Warning, PortClosed)]),
        (silent(false, true, false), reached(), vec![(Warning, Filtered)]),
        (silent(true, false, true), silent(true, false, true), vec![(Problem, PortClosed), (Problem, PortClosed)]),
        (
            silent(false, false, true),
            silent(false, false, false),
            vec![(Problem, NoUdpAnywhere), (Problem, NothingAnywhere)],
        ),
        // A relay that refuses the client is a relay that answers.
        (silent(false, false, false), refused(RefusedReason::Full, NOW), vec![(Warning, NothingHere)]),
    ];
    for (first, second, expected) in table {
        assert_eq!(hints(first.clone(), second.clone()), expected, "{first:?} {second:?}");
    }
}

#[test]
fn another_key_is_a_problem_whatever_else_works() {
    let facts = Facts { ways: vec![way("wlan0", Outcome::WrongPin), way("wwan0", reached())], ..well() };
    assert!(
        matches!(complaint(&facts), (Verdict::Problem, Matter::WayWrongPin { interface, .. }) if interface == "wlan0")
    );
}

#[test]
fn a_missing_route_matters_only_where_nothing_else_reaches_the_relay() {
    let ways = |second| vec![way("wlan0", Outcome::NoRoute("unreachable".to_owned())), second];
    assert_eq!(
        complaints(&Facts {
            ways: ways(way("wlan0", reached())),
            networks: Ok(vec![(network("wlan0"), true)]),
            ..well()
        }),
        []
    );
    let (verdict, _) = complaint(&Facts { ways: ways(way("wwan0", reached())), ..well() });
    assert_eq!(verdict, Verdict::Warning);
    let facts = Facts { ways: ways(way("wwan0", Outcome::NoRoute("unreachable".to_owned()))), ..well() };
    assert!(complaints(&facts).iter().all(|finding| finding.verdict == Verdict::Problem));
}

#[test]
fn loss_and_a_path_that_does_not_join_are_warned_of() {
    let with = |change: fn(&mut Reached)| {
        let Outcome::Reached(mut reached) = reached() else { unreachable!() };
        change(&mut reached);
        Facts { ways: vec![way("wlan0", Outcome::Reached(reached)), way("wwan0", self::reached())], ..well() }
    };
    assert_eq!(complaint(&with(|reached| reached.loss_percent[1] = 6.0)).0, Verdict::Warning);
    assert_eq!(complaint(&with(|reached| reached.joined = false)).0, Verdict::Warning);
    assert_eq!(complaints(&with(|reached| reached.loss_percent = [4.0, 4.0])), []);
}

#[test]
fn a_token_is_warned_of_before_it_ends_and_a_refusal_is_a_problem() {
    let expiring = |at: u64| {
        let ways =
            vec![way("wlan0", Outcome::Reached(Reached { token_expires: at, joined: true, ..Reached::default() }))];
        Facts { ways, networks: Ok(vec![(network("wlan0"), true)]), ..well() }
    };
    assert_eq!(complaints(&expiring(NOW + 8 * DAY)), []);
    assert!(matches!(complaint(&expiring(NOW + 6 * DAY)), (Verdict::Warning, Matter::Token { .. })));

    let both = |reason| Facts { ways: ["wlan0", "wwan0"].map(|name| way(name, refused(reason, NOW))).into(), ..well() };
    assert!(matches!(complaint(&both(RefusedReason::Revoked)), (Verdict::Problem, Matter::Refused { .. })));
    assert!(matches!(complaint(&both(RefusedReason::Full)), (Verdict::Warning, Matter::Refused { .. })));
}

#[test]
fn the_clock_is_compared_with_what_the_relay_tells() {
    let clock = |facts: &Facts| {
        judge(facts).into_iter().find_map(|finding| match finding.matter {
            Matter::ClockWrong { ahead_s } => Some((finding.verdict, ahead_s)),
            _ => None,
        })
    };
    let refused_at = |time| Facts { ways: vec![way("wlan0", refused(RefusedReason::NotYetValid, time))], ..well() };
    assert_eq!(clock(&refused_at(NOW + 60)), None);
    assert_eq!(clock(&refused_at(NOW + 3600)), Some((Verdict::Problem, -3600)));
    assert_eq!(clock(&refused_at(NOW - 3600)), Some((Verdict::Problem, 3600)));
    // Taken by the relay, though long over by this clock.
    let over = Reached { token_expires: NOW - DAY, joined: true, ..Reached::default() };
    let facts = Facts { ways: vec![way("wlan0", Outcome::Reached(over))], ..well() };
    assert_eq!(clock(&facts), Some((Verdict::Warning, DAY as i64 - 600)));
    let facts = Facts { now: SystemTime::UNIX_EPOCH, ways: Vec::new(), ..well() };
    assert!(matches!(clock(&facts), Some((Verdict::Problem, ahead)) if ahead < 0));
}

#[test]
fn unused_networks_say_why_and_having_none_is_a_problem() {
    let down = Interface { up: false, ..network("eth0") };
    let inside = Interface { external: false, ..network("docker0") };
    let why = |facts: &Facts| -> Vec<_> {
        let unused = |finding: Finding| match finding.matter {
            Matter::NetworkUnused { interface, why, .. } => Some((finding.verdict, interface, why)),
            _ => None,
        };
        judge(facts).into_iter().filter_map(unused).collect()
    };
    let facts = Facts { networks: Ok(vec![(down.clone(), false), (inside, false)]), ways: Vec::new(), ..well() };
    let expected =
        [(Verdict::Ok, "eth0".to_owned(), Unused::Down), (Verdict::Ok, "docker0".to_owned(), Unused::Inside)];
    assert_eq!(why(&facts), expected);
    assert!(matches!(complaint(&facts), (Verdict::Problem, Matter::NoNetwork)));

    let named = vec!["eth0".to_owned(), "eth9".to_owned()];
    let facts = Facts { networks: Ok(vec![(down, false), (network("wlan0"), false)]), named, ..well() };
    assert_eq!(why(&facts)[0], (Verdict::Warning, "eth0".to_owned(), Unused::Down));
    assert_eq!(why(&facts)[1], (Verdict::Ok, "wlan0".to_owned(), Unused::NotNamed));
    assert!(
        complaints(&facts)
            .iter()
            .any(|finding| matches!(&finding.matter, Matter::NetworkMissing { interface } if interface == "eth9"))
    );

    let facts = Facts { ways: vec![way("wlan0", reached())], ..well() };
    assert_eq!(why(&facts), [(Verdict::Warning, "wwan0".to_owned(), Unused::NoFittingAddress)]);
}

#[test]
fn a_port_is_a_problem_unless_the_running_client_has_it() {
    let address: SocketAddr = "127.0.0.1:1080".parse().unwrap();
    let taken = |name: &str, engine: Option<SessionState>| Facts {
        listen: vec![(address, PortState::Taken { by: Some(Holder { name: name.to_owned(), pid: 7 }) })],
        engine: Ok(engine.map(|state| Box::new(Snapshot { state, ..Snapshot::default() }))),
        ..well()
    };
    assert_eq!(complaints(&taken("tandem", Some(SessionState::Connected))), []);
    let expected = Matter::PortTaken { address, by: Some("sshd".to_owned()), pid: Some(7) };
    assert_eq!(complaint(&taken("sshd", None)), (Verdict::Problem, expected.clone()));
    assert_eq!(complaint(&taken("sshd", Some(SessionState::Connected))), (Verdict::Warning, expected));
}

#[test]
fn a_running_client_is_asked_how_it_stands() {
    let engine = |state, problem: Option<&str>| {
        let snapshot = Snapshot {
            state,
            problem: problem.map(str::to_owned),
            paths: vec![PathStats { state: PathState::Up, ..PathStats::default() }, PathStats::default()],
            ..Snapshot::default()
        };
        complaint(&Facts { engine: Ok(Some(Box::new(snapshot))), ..well() })
    };
    use tandem_proto::stats::PathState;
    let expected = Matter::EngineConnected { networks_up: 1, networks: 2 };
    assert_eq!(engine(SessionState::Connected, None), (Verdict::Warning, expected));
    let expected = Matter::EngineTrying { problem: Some("why".to_owned()) };
    assert_eq!(engine(SessionState::Connecting, Some("why")), (Verdict::Warning, expected));
}

#[test]
fn without_a_pairing_that_is_the_problem_and_a_missing_keychain_a_warning() {
    let facts = Facts {
        link: Err("no pairing link".to_owned()),
        keychain: Err("silent".to_owned()),
        ways: Vec::new(),
        ..well()
    };
    let verdicts: Vec<_> = complaints(&facts).into_iter().map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Problem, Verdict::Warning]);
    assert_eq!(complaints(&Facts { keychain: Err("silent".to_owned()), ..well() }), []);
}

#[test]
fn only_a_memory_shorter_than_an_idle_clients_silence_is_warned_of() {
    let with = |open_s, closed_s| {
        let mut facts = well();
        facts.ways[0].mapping = Some(Mapping { open_s, closed_s });
        complaints(&facts)
    };
    assert_eq!(with(Some(50), None), []);
    assert_eq!(with(Some(25), Some(35)), []);
    assert_eq!(with(None, Some(16))[0].verdict, Verdict::Warning);
}

#[test]
fn names_that_do_not_resolve_matter_unless_an_address_works() {
    let name = Name { name: "relay.example.org".to_owned(), found: Err("no".to_owned()), took: Duration::ZERO };
    let facts = Facts { names: vec![name.clone()], ..well() };
    assert_eq!(complaint(&facts).0, Verdict::Warning);
    let facts = Facts { names: vec![name], ways: Vec::new(), ..well() };
    assert_eq!(complaint(&facts).0, Verdict::Problem);
}

#[test]
fn findings_are_flat_objects_for_programs() {
    let finding =
        Finding { verdict: Verdict::Problem, matter: Matter::NetworkMissing { interface: "eth9".to_owned() } };
    let json = serde_json::to_string(&finding).unwrap();
    assert_eq!(json, r#"{"verdict":"problem","finding":"network_missing","interface":"eth9"}"#);
}
