//! The control socket with a real engine that has no network.

use std::sync::Arc;

use proptest::prelude::*;
use tandem_proto::events::Event;
use tandem_proto::mode::Sides;
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::SessionState;
use tokio::task::JoinHandle;

use super::*;
use crate::client::{Engine, EngineConfig};
use crate::platform::Scripted;

async fn engine() -> Engine {
    let link = PairingLink {
        relays: vec!["192.0.2.1:4433".parse().unwrap()],
        pins: vec![[7; 32]],
        token: Secret::new("v4.public.abc".to_owned()),
        name: String::new(),
    };
    let config = EngineConfig { listen: None, seed: Some([1; 32]), ..EngineConfig::new(link) };
    Engine::start(config, Arc::new(Scripted::new(Vec::new()))).await.unwrap()
}

async fn serve(path: &Path, engine: &Engine) -> JoinHandle<()> {
    tokio::spawn(ControlServer::bind(path).await.unwrap().serve(engine.handle()))
}

#[tokio::test]
async fn status_mode_and_stop_reach_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep").join("control.sock");
    let engine = engine().await;
    let handle = engine.handle();
    let mut snapshots = handle.subscribe();
    let has_problem = snapshots.wait_for(|snapshot| snapshot.problem.is_some());
    timeout(Duration::from_secs(10), has_problem).await.unwrap().unwrap();
    serve(&path, &engine).await;

    let snapshot = ask(&path, &Request::Status).await.unwrap().unwrap();
    assert_eq!(snapshot.state, SessionState::Connecting);
    assert!(snapshot.problem.unwrap().contains("no network can be used"));
    assert_eq!(snapshot.relay, "192.0.2.1:4433");

    let both = Mode::Bicast(Sides::Both);
    assert_eq!(ask(&path, &Request::Mode(both)).await.unwrap(), None);
    assert_eq!(ask(&path, &Request::Status).await.unwrap().unwrap().mode, both);

    assert_eq!(ask(&path, &Request::Stop).await.unwrap(), None);
    timeout(Duration::from_secs(10), handle.stop_requested()).await.unwrap();
    engine.stop().await;
    assert_eq!(handle.snapshot().state, SessionState::Stopped);
}

#[tokio::test]
async fn a_second_engine_is_refused_and_a_stale_socket_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let engine = engine().await;
    let server = serve(&path, &engine).await;
    assert!(matches!(ControlServer::bind(&path).await, Err(ControlError::InUse(_))));
    server.abort();
    let _ = server.await;
    assert!(matches!(ask(&path, &Request::Status).await, Err(ControlError::NotRunning(_))));

    // A crash leaves the file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    serve(&path, &engine).await;
    assert!(ask(&path, &Request::Status).await.unwrap().is_some());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(ControlServer::bind(&path).await, Err(ControlError::Io { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[tokio::test]
async fn the_socket_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let engine = engine().await;
    serve(&path, &engine).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn nonsense_gets_an_error_and_an_endless_line_the_door() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let engine = engine().await;
    serve(&path, &engine).await;
    let stream = connect(&path).await.unwrap();
    let (reader, mut writer) = (&stream, &stream);
    let mut lines = BufReader::new(reader).lines();
    for line in [&b"hello\n"[..], b"{\"command\":\"fly\"}\n", b"{\"command\":\"mode\",\"mode\":\"both\"}\n"] {
        writer.write_all(line).await.unwrap();
        let answer = lines.next_line().await.unwrap().unwrap();
        assert!(answer.starts_with("{\"error\":\"no request"), "{answer}");
    }
    let _ = writer.write_all(&[b'x'; MAX_REQUEST as usize]).await;
    let answer = lines.next_line().await.unwrap().unwrap();
    assert!(answer.contains("at most 4096 bytes"), "{answer}");
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[test]
fn requests_are_written_as_documented() {
    let text = |request: Request| serde_json::to_string(&request).unwrap();
    assert_eq!(text(Request::Status), r#"{"command":"status"}"#);
    assert_eq!(text(Request::Stop), r#"{"command":"stop"}"#);
    let mode = Request::Mode(Mode::Bicast(Sides::Client));
    assert_eq!(text(mode), r#"{"command":"mode","mode":"bicast","bicast":"client"}"#);
    assert_eq!(text(Request::Mode(Mode::Single)), r#"{"command":"mode","mode":"single"}"#);
    assert_eq!(text(Request::Events), r#"{"command":"events"}"#);
    let owned = |text: &str| text.to_owned();
    let set = Request::Set { network: owned("wwan0"), setting: owned("cap-daily"), value: owned("2 GB") };
    assert_eq!(text(set), r#"{"command":"set","network":"wwan0","setting":"cap-daily","value":"2 GB"}"#);
    assert_eq!(text(Request::Reset { network: owned("wwan0") }), r#"{"command":"reset","network":"wwan0"}"#);
}

#[tokio::test]
async fn networks_are_spoken_of_by_name_and_what_is_wrong_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let engine = engine().await;
    serve(&path, &engine).await;
    let set = async |network: &str, setting: &str, value: &str| {
        let [network, setting, value] = [network, setting, value].map(str::to_owned);
        ask(&path, &Request::Set { network, setting, value }).await
    };
    set("cell0", "role", "backup").await.unwrap();
    set("cell0", "cap-daily", "2 GB").await.unwrap();
    let networks = ask(&path, &Request::Status).await.unwrap().unwrap().networks;
    assert_eq!((networks.len(), networks[0].cap_daily_bytes), (1, Some(2_000_000_000)));
    for (network, setting, value, words) in [
        ("cell0", "role", "always", "it must be use, backup or never"),
        ("cell0", "colour", "red", "no setting of a network"),
        ("", "role", "use", "interface's name"),
        (&"x".repeat(65), "role", "use", "interface's name"),
    ] {
        let error = set(network, setting, value).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let reset = Request::Reset { network: "cell0".to_owned() };
    ask(&path, &reset).await.unwrap();
    assert!(ask(&path, &reset).await.unwrap_err().to_string().contains("nothing was set"));
    for number in 0..MAX_NETWORKS {
        set(&format!("net{number}"), "role", "never").await.unwrap();
    }
    assert!(set("one-more", "role", "never").await.unwrap_err().to_string().contains("already"));
}

#[tokio::test]
async fn events_come_as_they_happen_until_the_engine_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let engine = engine().await;
    let server = serve(&path, &engine).await;
    let mut events = Events::of(&path).await.unwrap();
    let handle = engine.handle();
    // A cap that is reached is told at once; the first look must be before.
    sleep(Duration::from_millis(600)).await;
    handle.set_network("cell0", "cap-daily", "10 MB").unwrap();
    engine.charge("cell0", 10_000_000);
    let told = timeout(Duration::from_secs(20), events.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(&told.event, Event::CapReached { network, .. } if network == "cell0"), "{told:?}");
    assert!(told.unix_ms > 1_700_000_000_000);
    server.abort();
    assert_eq!(timeout(Duration::from_secs(20), events.next()).await.unwrap().unwrap(), None);
    assert!(matches!(Events::of(&path).await, Err(ControlError::NotRunning(_))));
}

proptest! {
    #[test]
    fn any_line_is_a_request_or_an_error_and_requests_read_back(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        command in prop_oneof![Just("status"), Just("mode"), Just("stop"), Just("fly")],
        mode in prop_oneof![Just("\"single\""), Just("\"bicast\""), Just("7"), Just("null")],
        sides in prop_oneof![Just("\"client\""), Just("\"both\""), Just("[]"), Just("{\"a\":1}")],
    ) {
        let _ = serde_json::from_slice::<Request>(&noise);
        let text = format!("{{\"command\":\"{command}\",\"mode\":{mode},\"bicast\":{sides}}}");
        if let Ok(request) = serde_json::from_str::<Request>(&text) {
            let again = serde_json::to_string(&request).unwrap();
            prop_assert_eq!(serde_json::from_str::<Request>(&again).unwrap(), request);
        }
    }
}
