//! Tests of the pairing link.

use proptest::prelude::*;

use super::*;
use crate::wire::flow::Host;

const TOKEN: &str = "v4.public.eyJpZCI6ImEifQ_-0";

fn link() -> PairingLink {
    PairingLink {
        relays: vec!["relay.example.org:4433".parse().unwrap(), "[2001:db8::7]:4433".parse().unwrap()],
        pins: vec![[7; 32]],
        token: Secret::new(TOKEN.to_owned()),
        name: "My phone, é".to_owned(),
    }
}

fn relays() -> impl Strategy<Value = Vec<Target>> {
    let host = prop_oneof![
        "[a-z][a-z0-9.-]{0,20}".prop_map(Host::Name),
        any::<[u8; 4]>().prop_map(|octets| Host::Ip(octets.into())),
        any::<[u8; 16]>().prop_map(|octets| Host::Ip(octets.into())),
    ];
    prop::collection::vec((host, 1..=u16::MAX).prop_map(|(host, port)| Target { host, port }), 1..=MAX_RELAYS)
}

#[test]
fn a_link_learns_the_keys_that_count_and_a_token_that_fits() {
    let (old, new, newest) = ([7; 32], [8; 32], [9; 32]);
    let mut known = link();
    assert!(!known.learn(Some(old), None, None), "nothing new");
    assert!(known.learn(Some(old), Some(new), None));
    assert_eq!(known.pins, [old, new]);
    assert!(known.learn(Some(new), Some(newest), Some(Secret::new("v4.public.new".to_owned()))));
    assert_eq!(
        (known.pins.clone(), known.token.expose()),
        (vec![new, newest], "v4.public.new"),
        "the old key is dropped"
    );
    assert!(!known.learn(None, None, Some(Secret::new("no token!".to_owned()))));
    assert!(!known.learn(Some(new), Some(newest), Some(Secret::new("x".repeat(MAX_TOKEN + 1)))));
    assert_eq!(known.check(), Ok(()));
}

proptest! {
    #[test]
    fn a_link_reads_back(
        relays in relays(),
        pins in prop::collection::vec(any::<[u8; 32]>(), 1..=2),
        token in "[A-Za-z0-9._-]{1,1024}",
        name in "\\PC{0,16}",
    ) {
        let link = PairingLink { relays, pins, token: Secret::new(token), name };
        prop_assert_eq!(link.expose().parse::<PairingLink>(), Ok(link));
    }

    #[test]
    fn any_text_is_a_link_or_an_error(text in "(tandem://)?\\PC{0,80}") {
        let _ = text.parse::<PairingLink>();
    }

    /// SEC-5
    #[test]
    fn a_damaged_link_never_shows_its_token(at in any::<prop::sample::Index>(), with in "[ -~]?") {
        let mut text = link().expose();
        let at = at.index(text.len());
        text.replace_range(at..=at, &with);
        if let Err(error) = text.parse::<PairingLink>() {
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains(&TOKEN[10..18]), "{}", shown);
        }
    }
}

#[test]
fn the_text_of_a_link_is_as_specified() {
    let pin = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";
    let text = format!(
        "tandem://relay.example.org:4433,[2001:db8::7]:4433/?v=1&pin={pin}&token={TOKEN}&name=My%20phone%2C%20%C3%A9"
    );
    assert_eq!(link().expose(), text);
    assert_eq!(format!("\n {text} \n").parse(), Ok(link()));
}

#[test]
fn a_wrong_link_is_refused_with_the_part_that_is_wrong() {
    let good = link().expose();
    let error = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to).parse::<PairingLink>().unwrap_err()
    };
    assert_eq!(error("tandem://", "https://"), LinkError::Form);
    assert_eq!(error("/?", "?"), LinkError::Form);
    assert_eq!(error("v=1", "v=2"), LinkError::Version("2".to_owned()));
    assert_eq!(error("v=1&", ""), LinkError::Version(String::new()));
    assert!(matches!(error(":4433,", ","), LinkError::Relay(TargetError::Port(_))));
    assert!(matches!(error("relay.example.org:4433,", ","), LinkError::Relay(_)));
    assert_eq!(error("relay.example.org:4433,[2001:db8::7]:4433", ""), LinkError::RelayCount(0));
    assert_eq!(error("relay.example.org:4433,", &"a:1,".repeat(8)), LinkError::RelayCount(9));
    assert!(matches!(error("pin=Bw", "pin=w"), LinkError::Pin(_)));
    assert_eq!(error("pin=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc&", ""), LinkError::PinCount(0));
    assert_eq!(error("v4.public.", "v4 public "), LinkError::Token);
    assert_eq!(error(TOKEN, ""), LinkError::Token);
    assert_eq!(error("%C3%A9", "%C3"), LinkError::Name);
    assert_eq!(error("%20", "%0A"), LinkError::Name);
    assert_eq!(error("%20", " "), LinkError::Name);
    assert_eq!(error("&name", "&v=1&name"), LinkError::Repeated("v"));
    assert_eq!(error("&name", "&key=1&name"), LinkError::Unknown("key".to_owned()));
    assert!(matches!(error("v=1", &"v=1&".repeat(600)), LinkError::Length(_)));
}

/// SEC-5
#[test]
fn a_link_does_not_show_its_token() {
    let shown = format!("{:?} {:#?}", link(), link());
    assert!(!shown.contains("eyJ"), "{shown}");
}
