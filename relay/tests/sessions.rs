//! Sessions and flows as a client meets them.

mod bed;

use std::sync::Arc;
use std::time::Duration;

use bed::{Bed, PATIENCE, accept, closed, connect, hello, open, origin, read, read_to_end, say_hello, write};
use tandem_core::dial::FlowSend;
use tandem_proto::congestion::Algorithm;
use tandem_proto::pairing::Secret;
use tandem_proto::wire::flow::{CloseCode, ControlMessage, OpenError, RefusedReason, VersionRange};
use tandem_relay::serve::Limits;
use tandem_relay::tokens::{Authority, CLOCK_SKEW, Renewer, Revoked};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128"];

#[tokio::test]
async fn a_welcome_tells_what_the_relay_grants() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let connection = bed.connect().await;
    let (_control, answer) = say_hello(&connection, hello(bed.token().0)).await;
    let ControlMessage::Welcome(welcome) = answer else { panic!("{answer:?}") };
    assert_eq!(welcome.version, 1);
    assert_eq!(welcome.max_flows, Limits::default().flows_per_session);
    assert_eq!(welcome.congestion, Some(Algorithm::NewReno));
    assert_eq!(welcome.next_pin, Some([9; 32]));
    let expires_in = welcome.token_expires as i64 - OffsetDateTime::now_utc().unix_timestamp();
    assert!((3500..=3600).contains(&expires_in), "{expires_in} s");
}

/// SOCKS-7 (the relay's half), TCP-1
#[tokio::test]
async fn a_flow_reaches_a_target_given_by_name_and_keeps_tcps_clean_end() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (connection, _control) = bed.session().await;
    let (listener, address) = origin().await;
    let target = address.replace("127.0.0.1", "localhost");
    let (mut stream, answer) = open(&connection, &target).await;
    assert_eq!(answer, Ok(()));
    let mut tcp = accept(&listener).await;

    stream.send.write_all(b"question").await.unwrap();
    stream.send.finish();
    let mut question = Vec::new();
    timeout(PATIENCE, tcp.read_to_end(&mut question)).await.unwrap().unwrap();
    assert_eq!(question, b"question");
    // The other half is open still.
    tcp.write_all(b"answer").await.unwrap();
    drop(tcp);
    assert_eq!(read_to_end(&mut stream).await, b"answer");
}

/// TCP-2
#[tokio::test]
async fn a_reset_of_the_target_resets_the_flow() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (connection, _control) = bed.session().await;
    let (listener, address) = origin().await;
    let (mut stream, _) = open(&connection, &address).await;
    let tcp = accept(&listener).await;
    tcp.set_zero_linger().unwrap();
    drop(tcp);
    assert!(timeout(PATIENCE, stream.recv.read_chunk()).await.unwrap().is_err());
}

/// SEC-1
#[tokio::test]
async fn private_targets_are_refused_without_a_packet() {
    let bed = Bed::start(&[], Limits::default());
    let (connection, _control) = bed.session().await;
    let (listener, address) = origin().await;
    let port = address.rsplit(':').next().unwrap();
    let hosts = "127.0.0.1 127.77.0.1 0.0.0.0 localhost LOCALHOST. a.localhost [::1] [::] [::ffff:127.0.0.1] \
                 [::ffff:169.254.169.254] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2001::7f00:1] 169.254.169.254 \
                 168.63.129.16 10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 192.0.0.192 224.0.0.1 255.255.255.255 [fd00::1] \
                 [fd00:ec2::254] [fe80::1] [ff02::1]";
    for host in hosts.split_whitespace() {
        let (_, answer) = open(&connection, &format!("{host}:{port}")).await;
        assert_eq!(answer, Err(OpenError::Forbidden), "{host}");
    }
    nobody_came(&listener).await;
}

/// SOCKS-6
#[tokio::test]
async fn a_flow_is_answered_only_when_its_fate_is_known() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (connection, _control) = bed.session().await;
    let (listener, address) = origin().await;
    drop(listener);
    assert_eq!(open(&connection, &address).await.1, Err(OpenError::Refused));
}

/// SEC-2
#[tokio::test]
async fn without_a_hello_nothing_is_served_and_the_connection_ends_within_5_s() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (listener, address) = origin().await;

    let silent = bed.connect().await;
    let silent_since = Instant::now();
    // A flow's request on the first stream is no Hello.
    let hasty = bed.connect().await;
    let mut stream = hasty.open_stream().await.unwrap();
    let mut request = Vec::new();
    tandem_proto::wire::flow::encode_request(&address.parse().unwrap(), &mut request).unwrap();
    stream.send.write_all(&request).await.unwrap();

    let end = closed(&silent).await;
    assert_eq!(end, Some(CloseCode::NoHello));
    assert!(silent_since.elapsed() < Duration::from_secs(5), "{:?}", silent_since.elapsed());
    assert_eq!(closed(&hasty).await, Some(CloseCode::NoHello));
    nobody_came(&listener).await;
}

/// SEC-2
#[tokio::test]
async fn without_a_valid_token_nothing_is_served_and_the_client_is_told_why() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (listener, address) = origin().await;
    let now = OffsetDateTime::now_utc();
    let hour = Duration::from_secs(3600);
    let issue = |authority: &Authority, hours_ago: i64| {
        authority.issue("test", now - time::Duration::hours(hours_ago), hour).unwrap()
    };
    let foreign = issue(&Authority::generate().unwrap(), 0).0;
    let (expired, early) = (issue(&bed.authority, 2).0, issue(&bed.authority, -1).0);
    let (revoked, claims) = issue(&bed.authority, 0);
    bed.revoked.send_replace(Arc::new(Revoked::from_iter([claims.id])));
    let cases = [
        (Secret::new("token".to_owned()), RefusedReason::BadToken, "not one that this relay issued"),
        (foreign, RefusedReason::BadToken, "not one that this relay issued"),
        (expired, RefusedReason::Expired, "this relay's clock says"),
        (early, RefusedReason::NotYetValid, "clock"),
        (revoked, RefusedReason::Revoked, "revoked"),
    ];
    for (token, reason, text) in cases {
        let start = Instant::now();
        let connection = bed.connect().await;
        let mut control = connection.open_stream().await.unwrap();
        // A flow that does not wait for the relay's word.
        let mut flow = connection.open_stream().await.unwrap();
        let mut request = Vec::new();
        tandem_proto::wire::flow::encode_request(&address.parse().unwrap(), &mut request).unwrap();
        flow.send.write_all(&request).await.unwrap();
        write(&mut control, &ControlMessage::Hello(hello(token))).await;
        let answer = read(&mut control).await;
        let ControlMessage::Refused(refused) = answer else { panic!("{answer:?}") };
        assert_eq!(refused.reason, reason);
        assert!(refused.text.contains(text), "{}", refused.text);
        assert!(refused.relay_time.abs_diff(now.unix_timestamp() as u64) < 60);
        assert_eq!(closed(&connection).await, Some(CloseCode::Refused(reason)));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
    nobody_came(&listener).await;
}

#[tokio::test]
async fn a_client_of_another_version_is_told_which_side_to_update() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let connection = bed.connect().await;
    let mut control = connection.open_stream().await.unwrap();
    write(&mut control, &ControlMessage::ForeignHello(VersionRange { min: 7, max: 9 })).await;
    let answer = read(&mut control).await;
    let ControlMessage::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.reason, RefusedReason::Version);
    assert_eq!(refused.versions, VersionRange::OURS);
    assert!(refused.text.contains("versions 7 to 9: update the relay"), "{}", refused.text);
}

#[tokio::test]
async fn the_pin_of_the_next_key_is_told_to_those_who_are_connected() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (_connection, mut control) = bed.session().await;
    for pin in [Some([8; 32]), None] {
        bed.next_pin.send_replace(pin);
        let message = read(&mut control).await;
        let ControlMessage::Update(update) = message else { panic!("{message:?}") };
        assert_eq!((update.next_pin, update.token), (pin, None));
        assert!(update.token_expires > OffsetDateTime::now_utc().unix_timestamp() as u64);
    }
}

#[tokio::test]
async fn a_token_of_which_a_third_is_left_is_renewed_once_and_a_younger_one_or_one_without_the_key_is_not() {
    let (hour, now) = (Duration::from_secs(3600), OffsetDateTime::now_utc());
    for (minutes_ago, has_key) in [(45, true), (45, false), (30, true)] {
        let authority = Authority::generate().unwrap();
        let verifier = authority.verifier();
        let (token, claims) = authority.issue("test", now - time::Duration::minutes(minutes_ago), hour).unwrap();
        let renewer = has_key.then(|| Arc::new(Renewer::new(authority, [claims.clone()], |_| Ok(()))));
        let bed = Bed::with_tokens(LOOPBACK, Limits::default(), verifier.clone(), renewer);
        let mut renewed = Vec::new();
        for _ in 0..2 {
            let connection = bed.connect().await;
            let (mut control, answer) = say_hello(&connection, hello(token.clone())).await;
            assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
            if minutes_ago == 45 && has_key {
                let message = read(&mut control).await;
                let ControlMessage::Update(update) = message else { panic!("{message:?}") };
                let claims_now = verifier.verify(update.token.as_ref().unwrap(), now).unwrap();
                assert_eq!(
                    (&claims_now.id, claims_now.expires - claims_now.issued),
                    (&claims.id, time::Duration::hours(1))
                );
                assert_eq!(update.token_expires, claims_now.expires.unix_timestamp() as u64);
                assert_eq!(update.next_pin, Some([9; 32]));
                renewed.push(update.token.unwrap());
            }
            let silent = timeout(Duration::from_millis(200), read(&mut control)).await;
            assert!(silent.is_err(), "{silent:?}");
        }
        assert!(renewed.iter().all(|token| *token == renewed[0]), "the same for every session");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_live_session_and_no_other() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (other, _other_control) = bed.session().await;
    let (token, id) = bed.token();
    let connection = bed.connect().await;
    let (_control, _) = say_hello(&connection, hello(token)).await;
    bed.revoked.send_replace(Arc::new(Revoked::from_iter([id])));
    assert_eq!(closed(&connection).await, Some(CloseCode::Refused(RefusedReason::Revoked)));
    let (_listener, address) = origin().await;
    assert_eq!(open(&other, &address).await.1, Ok(()));
}

#[tokio::test]
async fn a_session_ends_with_its_token_once_no_clock_can_take_it_for_good() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (other, _other_control) = bed.session().await;
    let (left, hour) = (Duration::from_secs(2), Duration::from_secs(3600));
    // The token is good until the clocks' skew is over.
    let issued = OffsetDateTime::now_utc() - hour - CLOCK_SKEW + left;
    let (token, _) = bed.authority.issue("test", issued, hour).unwrap();
    let start = Instant::now();
    let connection = bed.connect().await;
    let (_control, answer) = say_hello(&connection, hello(token)).await;
    assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
    assert_eq!(closed(&connection).await, Some(CloseCode::Refused(RefusedReason::Expired)));
    // Some of the time was gone before the start.
    assert!(start.elapsed() >= left / 2, "{:?}", start.elapsed());
    let (_listener, address) = origin().await;
    assert_eq!(open(&other, &address).await.1, Ok(()));
}

#[tokio::test]
async fn flows_over_the_limit_are_told_and_a_finished_one_makes_room() {
    let bed = Bed::start(LOOPBACK, Limits { flows_per_session: 1, ..Limits::default() });
    let (connection, _control) = bed.session().await;
    let (_listener, address) = origin().await;
    let (first, answer) = open(&connection, &address).await;
    assert_eq!(answer, Ok(()));
    assert_eq!(open(&connection, &address).await.1, Err(OpenError::Limit));
    drop(first);
    let room = async { while open(&connection, &address).await.1 != Ok(()) {} };
    timeout(PATIENCE, room).await.expect("the dropped flow makes room");
}

#[tokio::test]
async fn a_full_relay_says_so() {
    let bed = Bed::start(LOOPBACK, Limits { sessions: 1, ..Limits::default() });
    let (_first, _control) = bed.session().await;
    let connection = bed.connect().await;
    let (_control, answer) = say_hello(&connection, hello(bed.token().0)).await;
    assert!(
        matches!(answer, ControlMessage::Refused(ref refused) if refused.reason == RefusedReason::Full),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_device_gets_so_many_sessions_and_takes_nobody_elses() {
    let bed = Bed::start(LOOPBACK, Limits { sessions_per_device: 2, ..Limits::default() });
    let token = bed.token().0;
    let say = async |token: Secret| {
        let connection = bed.connect().await;
        let (control, answer) = say_hello(&connection, hello(token)).await;
        (connection, control, answer)
    };
    let (first, _first_control, _) = say(token.clone()).await;
    let (_second, _control, answer) = say(token.clone()).await;
    assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
    let (_, _, answer) = say(token.clone()).await;
    let ControlMessage::Refused(refused) = answer else { panic!("{answer:?}") };
    assert_eq!(refused.reason, RefusedReason::Full);
    assert!(refused.text.contains("this token has as many sessions as it may"), "{}", refused.text);
    let (_other, _control, answer) = say(bed.token().0).await;
    assert!(matches!(answer, ControlMessage::Welcome(_)), "{answer:?}");
    assert_eq!(bed.metric("tandem_relay_sessions"), 3.0);

    first.close(0, "done");
    let again = async { while !matches!(say(token.clone()).await.2, ControlMessage::Welcome(_)) {} };
    timeout(PATIENCE, again).await.expect("the ended session makes room");
}

/// SEC-2
#[tokio::test]
async fn before_its_hello_a_client_can_make_the_relay_keep_next_to_nothing() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let connection = bed.connect().await;
    let _control = connection.open_stream().await.unwrap();
    let mut stream = connection.open_stream().await.unwrap();
    let mut sent = 0;
    let block = [7; 1024];
    while timeout(Duration::from_millis(500), stream.send.write_all(&block)).await.is_ok_and(|sent| sent.is_ok()) {
        sent += block.len();
    }
    assert!(sent <= 64 << 10, "{sent} bytes");
    assert_eq!(closed(&connection).await, Some(CloseCode::NoHello));
    assert_eq!(bed.metric("tandem_relay_clients_refused_total{reason=\"no_hello\"}"), 1.0);
}

/// FLOWS-2 (the relay's half): QUIC's limit grows with what is used.
#[tokio::test]
async fn as_many_flows_as_are_allowed_open_at_once() {
    let bed = Bed::start(LOOPBACK, Limits { flows_per_session: 100, ..Limits::default() });
    let (connection, _control) = bed.session().await;
    let (_listener, address) = origin().await;
    let mut open_flows = Vec::new();
    for _ in 0..100 {
        let (stream, answer) = open(&connection, &address).await;
        assert_eq!(answer, Ok(()));
        open_flows.push(stream);
    }
    assert_eq!(bed.metric("tandem_relay_flows"), 100.0);
}

/// TCP-3 (a stop drains finished flows)
#[tokio::test]
async fn a_draining_relay_finishes_what_is_open_and_takes_nothing_new() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let (connection, mut control) = bed.session().await;
    let (listener, address) = origin().await;
    let (mut stream, _) = open(&connection, &address).await;
    let mut tcp = accept(&listener).await;

    bed.drain.cancel();
    assert!(matches!(read(&mut control).await, ControlMessage::GoingAway(_)));
    assert_eq!(open(&connection, &address).await.1, Err(OpenError::Internal));
    let data = vec![7; 1 << 20];
    let (sent, received) = tokio::join!(
        async {
            tcp.write_all(&data).await.unwrap();
            drop(tcp);
        },
        async {
            stream.send.finish();
            read_to_end(&mut stream).await
        },
    );
    let () = sent;
    assert_eq!(received.len(), data.len());
    assert_eq!(closed(&connection).await, Some(CloseCode::GoingAway));
    timeout(PATIENCE, bed.serving).await.expect("the relay stops").unwrap();
}

#[tokio::test]
async fn a_drain_ends_in_time_whatever_is_open() {
    let bed = Bed::start(LOOPBACK, Limits { drain_seconds: 1, ..Limits::default() });
    let (connection, _control) = bed.session().await;
    let (_listener, address) = origin().await;
    let (_stream, answer) = open(&connection, &address).await;
    assert_eq!(answer, Ok(()));
    bed.drain.cancel();
    assert_eq!(closed(&connection).await, Some(CloseCode::GoingAway));
    timeout(Duration::from_secs(5), bed.serving).await.expect("the relay stops").unwrap();
}

#[tokio::test]
async fn a_wrong_pin_is_not_connected_to() {
    let bed = Bed::start(LOOPBACK, Limits::default());
    let wrong = tokio::spawn(connect(bed.address, [0; 32]));
    assert!(wrong.await.is_err(), "a relay with another key was accepted");
}

async fn nobody_came(listener: &TcpListener) {
    let came = timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(came.is_err(), "a connection was made");
}
