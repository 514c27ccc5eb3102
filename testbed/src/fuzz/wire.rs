//! What travels on the wire and in pairing links.

use tandem_proto::mode::Copying;
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::path::order::{PathOrder, PathRole};
use tandem_proto::wire::control::{Frame, Message, PathId, PathReport, PathSent, SentReport, is_control, session_of};
use tandem_proto::wire::flow::{
    CloseCode, ControlMessage, GoingAway, Hello, Host, Measure, OpenError, Refused, RefusedReason, Request, Target,
    VersionRange, Welcome, decode_answer, decode_request, encode_answer, encode_request, frame_length, request_length,
};
use tandem_proto::wire::header::{HEADER_LEN, Header, is_framed, is_quic};

/// The first bytes of a UDP payload.
pub(super) fn header(bytes: &[u8]) {
    let kinds = [is_framed(bytes), is_quic(bytes), is_control(bytes)];
    assert!(kinds.into_iter().filter(|is| *is).count() <= 1, "a datagram is of two kinds: {kinds:?}");
    assert_eq!(session_of(bytes).is_some(), is_control(bytes));
    if let Some((header, body)) = Header::decode(bytes) {
        assert!(is_framed(bytes) && !body.is_empty());
        assert_eq!(&bytes[HEADER_LEN..], body);
        assert_eq!(header.number.to_be_bytes(), bytes[1..5]);
    }
}

pub(super) fn header_seeds() -> Vec<Vec<u8>> {
    let framed = |first: u8| [&[first, 0, 0, 0, 7, 1, 2, 3, 9, 9, 9, 9][..], &[0x40; 30]].concat();
    let control = [&[0b0010_0000][..], &[5; 40]].concat();
    vec![framed(0b0001_0000), framed(0b0001_0101), framed(0b0001_1010), control, vec![0xc0; 60], vec![0x40; 60]]
}

/// A control datagram's message, as it is once the seal is off.
pub(super) fn control(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else { return };
    let mut again = Vec::new();
    message.encode(&mut again);
    // An echo held for ever is none, so its clock is not written again, and padding may hold anything.
    assert_eq!(Message::decode(&again).as_ref(), Ok(&message));
}

pub(super) fn control_seeds() -> Vec<Vec<u8>> {
    let report = PathReport {
        path: 1,
        datagrams: 70,
        highest: 99,
        map: [0xff; 9].into_iter().collect(),
        ..PathReport::default()
    };
    let sent = SentReport {
        datagrams: 9,
        paths: vec![PathSent { path: 1, ..PathSent::default() }; 2],
        ..SentReport::default()
    };
    let backup = PathOrder { role: PathRole::Backup, rate: Some(125_000) };
    let orders = [(PathId(1), backup)].into_iter().collect();
    let frames = vec![
        vec![Frame::Ping],
        vec![Frame::Join, Frame::Ping],
        vec![Frame::Challenge([3; 8])],
        vec![Frame::Answer([4; 8]), Frame::Wish { sequence: 3, download: Copying::Bicast, orders }],
        vec![Frame::Joined, Frame::Leave(PathId(2))],
        vec![Frame::Report([report.clone(), report].into_iter().collect())],
        vec![Frame::Sent(sent)],
        vec![Frame::MtuProbe(1_400), Frame::Padding(64)],
        vec![Frame::MtuAck(1_400)],
    ];
    let encode = |frames: Vec<Frame>| {
        let mut out = Vec::new();
        let message = Message { path: PathId(1), clock: 77, echo: Some((5, 6)), frames: frames.into_iter().collect() };
        message.encode(&mut out);
        out
    };
    frames.into_iter().map(encode).collect()
}

/// What opens a flow, and its answer.
pub(super) fn request(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(length) = request_length(head)
        && let Ok(Some((request, used))) = decode_request(bytes)
    {
        assert_eq!(length, used);
        let mut again = Vec::new();
        match request {
            Request::Tcp(target) => encode_request(&target, &mut again).expect("what was read can be written"),
            Request::Measure(measure) => again.extend(measure.encode()),
        }
        assert_eq!(again, bytes[..used]);
        for cut in 0..used {
            assert_eq!(decode_request(&bytes[..cut]), Ok(None), "cut after {cut} bytes");
        }
    }
    if let Some(byte) = bytes.first() {
        let answer = decode_answer(*byte);
        assert!(encode_answer(answer) == *byte || answer == Err(OpenError::Internal));
    }
}

pub(super) fn request_seeds() -> Vec<Vec<u8>> {
    let encode = |text: &&str| {
        let mut out = Vec::new();
        encode_request(&text.parse().expect("a target"), &mut out).expect("a target that can be asked for");
        out
    };
    let long = format!("{}.example:65535", "a".repeat(240));
    let targets = ["example.org:443", "192.0.2.1:80", "[2001:db8::1]:1", &long];
    targets.iter().map(encode).chain([Measure::Upload { seconds: 9 }.encode().to_vec()]).collect()
}

/// The control stream, frame after frame.
pub(super) fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(head) = rest.first_chunk() {
        let Ok(length) = frame_length(head) else { return };
        let Ok(Some((message, used))) = ControlMessage::decode(rest) else { return };
        assert_eq!(used, length);
        let mut again = Vec::new();
        message.encode(&mut again);
        let read = ControlMessage::decode(&again).expect("what was written can be read").expect("it is whole");
        assert_eq!(read, (message, again.len()));
        rest = &rest[used..];
    }
    if let Some(code) = bytes.first_chunk().map(|code| u32::from_be_bytes(*code)) {
        assert!(CloseCode::from_code(code).is_none_or(|close| close.code() == code || code >= 256));
    }
}

pub(super) fn frame_seeds() -> Vec<Vec<u8>> {
    let hello = Hello {
        versions: VersionRange::OURS,
        features: 5,
        congestion: "bbr3".parse().ok(),
        token: Secret::new("v4.public.abc".to_owned()),
        client: "tandem 0.1".to_owned(),
    };
    let welcome = Welcome {
        version: 1,
        features: 0,
        max_flows: 2_000,
        token_expires: 1_900_000_000,
        congestion: "cubic".parse().ok(),
        next_pin: Some([7; 32]),
        relay: "tandem-relay 0.1".to_owned(),
    };
    let refused = Refused {
        reason: RefusedReason::Expired,
        versions: VersionRange::OURS,
        relay_time: 1_800_000_000,
        text: "the token expired".to_owned(),
    };
    let messages = [
        ControlMessage::Hello(hello),
        ControlMessage::Welcome(welcome),
        ControlMessage::Refused(refused),
        ControlMessage::GoingAway(GoingAway { text: "maintenance".to_owned() }),
    ];
    let mut all = Vec::new();
    let mut seeds: Vec<Vec<u8>> = messages
        .iter()
        .map(|message| {
            let mut out = Vec::new();
            message.encode(&mut out);
            all.extend_from_slice(&out);
            out
        })
        .collect();
    seeds.push(all);
    seeds.push([&[0x7f, 0xff, 0, 3][..], &[1, 2, 3]].concat());
    seeds
}

/// A pairing link, as it is pasted.
pub(super) fn pairing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<PairingLink>() {
        Ok(link) => assert_eq!(link.expose().parse::<PairingLink>().as_ref(), Ok(&link)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn pairing_seeds() -> Vec<Vec<u8>> {
    let link = |relays: &[&str], pins: usize, name: &str| {
        let link = PairingLink {
            relays: relays.iter().map(|relay| relay.parse().expect("an address")).collect(),
            pins: vec![[7; 32]; pins],
            token: Secret::new("v4.public.eyJqdGkiOiIwMDAifQ".to_owned()),
            name: name.to_owned(),
        };
        link.expose().into_bytes()
    };
    vec![
        link(&["relay.example.org:4433"], 1, ""),
        link(&["192.0.2.1:4433", "[2001:db8::1]:4433"], 2, "Anna's phone, größer"),
    ]
}

/// A target as people write it.
pub(super) fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse::<Target>().as_ref(), Ok(&target));
        encode_request(&target, &mut Vec::new()).expect("what people may write can be asked for");
    }
    if let Ok(host) = text.parse::<Host>() {
        assert_eq!(host.to_string().parse::<Host>().as_ref(), Ok(&host));
    }
}

pub(super) fn target_seeds() -> Vec<Vec<u8>> {
    ["example.org:443", "192.0.2.1:80", "[2001:db8::1]:65535", "[::ffff:192.0.2.1]:1", "a_b.example:1"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
