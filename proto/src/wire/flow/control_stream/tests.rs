//! Tests of the control stream's messages.

use proptest::prelude::*;

use super::*;

fn congestion() -> impl Strategy<Value = Option<Algorithm>> {
    prop::option::of(prop::sample::select(Algorithm::ALL.to_vec()))
}

fn ranges() -> impl Strategy<Value = VersionRange> {
    any::<(u16, u16)>().prop_map(|(a, b)| VersionRange { min: a.min(b), max: a.max(b) })
}

fn hellos() -> impl Strategy<Value = ControlMessage> {
    let max = VERSION..=u16::MAX;
    (0..=VERSION, max, any::<u32>(), congestion(), "[!-~]{1,1024}", "[ -~é]{0,32}").prop_map(
        |(min, max, features, congestion, token, client)| {
            let versions = VersionRange { min, max };
            ControlMessage::Hello(Hello { versions, features, congestion, token: Secret::new(token), client })
        },
    )
}

fn welcomes() -> impl Strategy<Value = ControlMessage> {
    (any::<(u32, u32, u64, Option<[u8; 32]>)>(), congestion(), "[ -~é]{0,32}").prop_map(
        |((features, max_flows, token_expires, next_pin), congestion, relay)| {
            let version = VERSION;
            ControlMessage::Welcome(Welcome {
                version,
                features,
                max_flows,
                token_expires,
                congestion,
                next_pin,
                relay,
            })
        },
    )
}

fn messages() -> impl Strategy<Value = ControlMessage> {
    let refused = (prop::sample::select(RefusedReason::ALL.to_vec()), ranges(), any::<u64>(), "[ -~é]{0,256}");
    prop_oneof![
        hellos(),
        welcomes(),
        refused.prop_map(|(reason, versions, relay_time, text)| {
            ControlMessage::Refused(Refused { reason, versions, relay_time, text })
        }),
        "[ -~é]{0,256}".prop_map(|text| ControlMessage::GoingAway(GoingAway { text })),
        (prop::option::of("[!-~]{1,1024}"), any::<(u64, Option<[u8; 32]>)>()).prop_map(
            |(token, (token_expires, next_pin))| {
                let token = token.map(Secret::new);
                ControlMessage::Update(Update { token, token_expires, next_pin })
            }
        ),
        (6..u16::MAX).prop_map(|frame_type| ControlMessage::Unknown { frame_type }),
    ]
}

fn encoded(message: &ControlMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_message_reads_back_and_a_cut_one_needs_more(message in messages(), rest in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = encoded(&message);
        let length = bytes.len();
        prop_assert_eq!(frame_length(bytes.first_chunk().unwrap()), Ok(length));
        for cut in 0..length {
            prop_assert_eq!(ControlMessage::decode(&bytes[..cut]), Ok(None));
        }
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(ControlMessage::decode(&bytes), Ok(Some((message, length))));
    }

    #[test]
    fn fields_of_a_later_version_at_the_end_of_a_payload_are_ignored(message in messages(), extra in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = encoded(&message);
        bytes.extend_from_slice(&extra);
        let payload = u16::try_from(bytes.len() - FRAME_HEAD).unwrap();
        bytes[2..4].copy_from_slice(&payload.to_be_bytes());
        let length = bytes.len();
        prop_assert_eq!(ControlMessage::decode(&bytes), Ok(Some((message, length))));
    }

    #[test]
    fn a_payload_that_ends_too_soon_is_an_error_that_names_a_field(message in messages()) {
        let bytes = encoded(&message);
        for payload in 0..bytes.len() - FRAME_HEAD {
            let mut cut = bytes[..FRAME_HEAD + payload].to_vec();
            cut[2..4].copy_from_slice(&u16::try_from(payload).unwrap().to_be_bytes());
            let short = matches!(ControlMessage::decode(&cut), Err(DecodeError::Short { .. }));
            prop_assert!(short, "payload cut to {payload} bytes");
        }
    }

    #[test]
    fn any_bytes_are_a_message_an_error_or_too_few(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ControlMessage::decode(&bytes);
    }

    #[test]
    fn any_payload_of_a_known_type_is_a_message_or_an_error(
        frame_type in 1u16..6,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = frame_type.to_be_bytes().to_vec();
        bytes.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(&payload);
        prop_assert_ne!(ControlMessage::decode(&bytes), Ok(None));
    }
}

#[test]
fn the_newest_common_version_is_chosen() {
    let range = |min, max| VersionRange { min, max };
    assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
    assert_eq!(range(4, 9).common(range(2, 5)), Some(5));
    assert_eq!(range(1, 1).common(range(2, 5)), None);
    assert_eq!(range(6, 9).common(range(2, 5)), None);
}

#[test]
fn a_hello_without_a_common_version_tells_its_versions_whatever_follows_them() {
    let bytes = [0, 1, 0, 6, 0, 7, 0, 9, 0xff, 0xff];
    let message = ControlMessage::ForeignHello(VersionRange { min: 7, max: 9 });
    assert_eq!(ControlMessage::decode(&bytes), Ok(Some((message, bytes.len()))));
}

#[test]
fn a_welcome_in_a_version_that_was_not_offered_is_refused() {
    let error = ControlMessage::decode(&[0, 2, 0, 2, 0, 2]).unwrap_err().to_string();
    assert!(error.contains("version is 2"), "{error}");
}

#[test]
fn a_controller_of_a_later_version_leaves_the_choice_to_the_relay() {
    let hello = Hello {
        versions: VersionRange::OURS,
        features: 0,
        congestion: Some(Algorithm::Bbr1),
        token: Secret::new("token".to_owned()),
        client: String::new(),
    };
    let mut bytes = encoded(&ControlMessage::Hello(hello.clone()));
    let at = bytes.windows(4).position(|window| window == b"bbr1").unwrap();
    bytes[at + 3] = b'9';
    let expected = ControlMessage::Hello(Hello { congestion: None, ..hello });
    assert_eq!(ControlMessage::decode(&bytes).unwrap().unwrap().0, expected);
}

#[test]
fn an_oversized_frame_is_refused_at_its_head() {
    let error = ControlMessage::decode(&[0, 9, 0x10, 0x01]).unwrap_err().to_string();
    assert!(error.contains("frame length is 4097"), "{error}");
}

/// SEC-5
#[test]
fn an_update_does_not_show_its_token() {
    let token = Some(Secret::new("v4.public.very-secret-indeed".to_owned()));
    let shown = format!("{:?}", ControlMessage::Update(Update { token, token_expires: 1, next_pin: None }));
    assert!(!shown.contains("very-secret"), "{shown}");
}

/// SEC-5
#[test]
fn a_hello_does_not_show_its_token() {
    let token = "v4.public.very-secret-indeed";
    let hello = Hello {
        versions: VersionRange::OURS,
        features: 0,
        congestion: None,
        token: Secret::new(token.to_owned()),
        client: "test".to_owned(),
    };
    let shown = format!("{:?} {hello:#?}", ControlMessage::Hello(hello.clone()));
    assert!(!shown.contains("very-secret"), "{shown}");
}
