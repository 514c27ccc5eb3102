//! Commands and tray over a mock of Tauri's runtime, with scripted engines: no screen is needed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem_controller::system_proxy::{Desktop, SystemProxy};
use tandem_controller::tray::Action;
use tandem_controller::{
    Condition, Controller, Links as _, MemoryLinks, Parts, ScriptedEngines, Settings, SettingsFile,
};
use tandem_core::client::control::Request;
use tandem_proto::measure::{Event, SpeedReport};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::{SessionState, Snapshot};
use tauri::ipc::{CallbackFn, InvokeBody};
use tauri::test::{INVOKE_KEY, MockRuntime, get_ipc_response, mock_builder, mock_context, noop_assets};
use tauri::webview::InvokeRequest;
use tauri::{App, WebviewWindow, WebviewWindowBuilder};
use tempfile::TempDir;

use crate::shell::{self, Shell};
use crate::{commands, tray};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the engines' proxy listens.
const PROXY: &str = "127.0.0.1:1080";

struct Stand {
    app: App<MockRuntime>,
    window: WebviewWindow<MockRuntime>,
    engines: ScriptedEngines,
    _files: TempDir,
}

fn link() -> PairingLink {
    PairingLink {
        relays: vec!["relay.example:4433".parse().unwrap()],
        pins: vec![[1; 32]],
        token: Secret::new("v4.public.c2VjcmV0".to_owned()),
        name: "laptop".to_owned(),
    }
}

impl Stand {
    fn new() -> Self {
        Self::on(None, Settings::default())
    }

    /// On this desktop, with a user who has chosen this.
    fn on(desktop: Option<Box<dyn Desktop>>, chosen: Settings) -> Self {
        let files = tempfile::tempdir().unwrap();
        let engines = ScriptedEngines::new(Snapshot {
            state: SessionState::Connected,
            proxy: Some(PROXY.to_owned()),
            ..Snapshot::default()
        });
        let links = MemoryLinks::default();
        links.change(true, Box::new(|pairings| pairings.add(link(), Some("home")).map(drop))).unwrap();
        let settings = SettingsFile::new(files.path().join("desktop.json"));
        settings.save(&chosen).unwrap();
        let parts = Parts {
            engines: Arc::new(engines.clone()),
            links: Arc::new(links),
            keeper: None,
            settings,
            runs: files.path().join("measurements.json"),
            system_proxy: Arc::new(SystemProxy::new(desktop, files.path().join("journal"))),
        };
        let app = commands::register(mock_builder()).build(mock_context(noop_assets())).unwrap();
        let (controller, handle, _notices) = Controller::new(parts);
        shell::manage(app.handle(), handle, tauri::async_runtime::spawn(controller.run()));
        let window = WebviewWindowBuilder::new(&app, "main", Default::default()).build().unwrap();
        Self { app, window, engines, _files: files }
    }

    fn call(&self, command: &str, arguments: Value) -> Result<Value, Value> {
        let request = InvokeRequest {
            cmd: command.to_owned(),
            callback: CallbackFn(0),
            error: CallbackFn(1),
            url: "tauri://localhost".parse().unwrap(),
            body: InvokeBody::Json(arguments),
            headers: Default::default(),
            invoke_key: INVOKE_KEY.to_owned(),
        };
        get_ipc_response(&self.window, request).map(|body| body.deserialize().unwrap())
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is() {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn condition(&self) -> Condition {
        Shell::of(self.app.handle()).controller().subscribe().borrow().condition
    }
}

#[test]
fn the_windows_commands_steer_the_engine_and_say_what_they_refuse() {
    let stand = Stand::new();
    stand.until("connected", || stand.condition() == Condition::Connected);
    let mode = json!({ "mode": { "mode": "bicast", "bicast": "server" } });
    stand.call("set_mode", mode).unwrap();
    assert_eq!(stand.engines.asked(), [Request::Mode(Mode::Bicast(Sides::Server))]);
    let refusal = stand.call("read_link", json!({ "link": "hello" })).unwrap_err();
    assert!(refusal["text"].as_str().unwrap().contains("tandem://"), "{refusal}");
    let about = stand.call("read_link", json!({ "link": link().expose() })).unwrap();
    assert_eq!(about, json!({ "addresses": "relay.example:4433", "name": "laptop" }));
    let picture = stand.call("link_qr", json!({ "name": "home" })).unwrap();
    assert!(picture.as_str().unwrap().contains("<svg"));
    assert!(stand.call("link_qr", json!({ "name": "other" })).is_err());
    assert!(stand.call("history", json!({ "span": "minute" })).unwrap()["unix_s"].is_array());
    assert!(stand.call("set_mode", json!({ "mode": { "mode": "fast" } })).is_err());
}

#[test]
fn the_window_measures_and_sees_what_came_of_it() {
    let stand = Stand::new();
    stand.until("connected", || stand.condition() == Condition::Connected);
    let events = stand.engines.measurement();
    stand.call("measure", json!({ "what": "speed", "seconds": 3 })).unwrap();
    let refusal = stand.call("measure", json!({ "what": "fairness", "seconds": 3 })).unwrap_err();
    assert!(refusal["text"].as_str().unwrap().contains("running already"), "{refusal}");
    stand.call("cancel_measuring", json!({})).unwrap();
    stand.until("the engine is told", || events.is_closed());
    let events = stand.engines.measurement();
    stand.call("measure", json!({ "what": "speed", "seconds": 3 })).unwrap();
    let (relay, congestion) = ("home".to_owned(), "bbr3".to_owned());
    let report = SpeedReport { relay, congestion, seconds: 3, rows: Vec::new() };
    events.blocking_send(Event::Speed(report)).unwrap();
    stand.until("it is there", || stand.call("runs", json!({})).unwrap()[0]["what"] == "speed");
    assert!(stand.call("measure", json!({ "what": "everything", "seconds": 3 })).is_err());
}

#[test]
fn the_trays_actions_do_what_the_windows_do() {
    let stand = Stand::new();
    stand.until("connected", || stand.condition() == Condition::Connected);
    tray::press(stand.app.handle(), Action::Mode(Mode::Bicast(Sides::Both)));
    stand.until("the mode was asked for", || stand.engines.asked() == [Request::Mode(Mode::Bicast(Sides::Both))]);
    tray::press(stand.app.handle(), Action::Disconnect);
    stand.until("off", || stand.condition() == Condition::Off);
    tray::press(stand.app.handle(), Action::Connect);
    stand.until("connected again", || stand.condition() == Condition::Connected);
}

#[test]
fn a_link_waits_once_and_texts_that_are_none_do_not() {
    let stand = Stand::new();
    let shell = Shell::of(stand.app.handle());
    shell.opened(stand.app.handle(), ["--hidden".to_owned(), "https://example.org".to_owned()]);
    assert_eq!(stand.call("take_link", json!({})).unwrap(), Value::Null);
    shell.opened(stand.app.handle(), [link().expose()]);
    assert_eq!(stand.call("take_link", json!({})).unwrap(), json!(link().expose()));
    assert_eq!(stand.call("take_link", json!({})).unwrap(), Value::Null);
}

/// DESK-2
#[test]
fn the_end_stops_the_engine_and_may_come_twice() {
    let stand = Stand::new();
    stand.until("connected", || stand.condition() == Condition::Connected);
    let shell = Shell::of(stand.app.handle());
    shell.end();
    shell.end();
    assert_eq!(stand.condition(), Condition::Off);
}

/// DESK-2
#[test]
fn the_end_takes_three_seconds_at_most_whatever_hangs() {
    let led = Arc::<AtomicBool>::default();
    let chosen = Settings { system_proxy: true, ..Settings::default() };
    let stand = Stand::on(Some(Box::new(Hanging { led: Arc::clone(&led) })), chosen);
    stand.until("the desktop's settings lead to the proxy", || led.load(Ordering::Relaxed));
    stand.engines.stick();
    let begun = Instant::now();
    Shell::of(stand.app.handle()).end();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A desktop whose tools hang when something is to be put back.
struct Hanging {
    led: Arc<AtomicBool>,
}

impl Desktop for Hanging {
    fn name(&self) -> &'static str {
        "hanging"
    }

    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Option<String>)> {
        vec![("proxy".to_owned(), Some(proxy.to_string()))]
    }

    fn read(&self, _setting: &str) -> io::Result<Option<String>> {
        Ok(self.led.load(Ordering::Relaxed).then(|| PROXY.to_owned()))
    }

    fn write(&self, _setting: &str, value: &Option<String>) -> io::Result<()> {
        if value.is_none() {
            std::thread::sleep(PATIENCE);
        }
        self.led.store(value.is_some(), Ordering::Relaxed);
        Ok(())
    }
}
