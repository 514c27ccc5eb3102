//! The control socket with a real engine that has no network.

use std::sync::Arc;

use proptest::prelude::*;
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
